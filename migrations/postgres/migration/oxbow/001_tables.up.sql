-- Keys compare bytewise on every database, whatever its locale: COLLATE "C".

-- One row for each instance. Every renewal updates it, so half of each page is
-- left free for updates in place.
CREATE TABLE /* TEMPLATE: schema */process_heartbeats (
    instance_id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    host text NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'alive',
    details jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT process_heartbeats_state CHECK (state IN ('alive', 'lost', 'stopped'))
) WITH (fillfactor = 50);

CREATE TABLE /* TEMPLATE: schema */handler_receipts (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    handler_key text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    claim_version bigint NOT NULL DEFAULT 0,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, scope, message_id, handler_key),
    CONSTRAINT handler_receipts_status CHECK (status IN ('succeeded', 'failed'))
);

-- Pruning goes by time; rows lie on disk in that order, so a block range index
-- finds the old ones at next to no cost for each insert.
CREATE INDEX handler_receipts_updated_at_idx ON /* TEMPLATE: schema */handler_receipts
    USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE /* TEMPLATE: schema */side_effects (
    tenant_id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    handler_key text COLLATE "C" NOT NULL,
    effect_key text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    policy text COLLATE "C" NOT NULL,
    request_digest text COLLATE "C" NOT NULL DEFAULT '',
    response text, -- JSON as text: jsonb would keep the digits but not the bytes
    last_error text,
    actor_id text COLLATE "C" NOT NULL DEFAULT '',
    instance_id text COLLATE "C" NOT NULL DEFAULT '',
    claim_version bigint NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, scope, message_id, handler_key, effect_key),
    CONSTRAINT side_effects_status CHECK (status IN ('intent', 'succeeded', 'failed', 'in_doubt', 'not_executed'))
);

CREATE INDEX side_effects_updated_at_idx ON /* TEMPLATE: schema */side_effects
    USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE INDEX side_effects_in_doubt_idx ON /* TEMPLATE: schema */side_effects (updated_at) WHERE status = 'in_doubt';

CREATE TABLE /* TEMPLATE: schema */operator_log (
    id bigserial PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator text NOT NULL,
    action text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    count integer NOT NULL DEFAULT 1,
    details jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX operator_log_target_idx ON /* TEMPLATE: schema */operator_log (target, id);

CREATE TABLE /* TEMPLATE: schema */dispatch_locks (
    name text COLLATE "C" PRIMARY KEY,
    holder text COLLATE "C" NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
