-- Times are UTC text of fixed width, as River stores them: text compares as time
-- does. Text keys compare bytewise by default.

CREATE TABLE /* TEMPLATE: schema */process_heartbeats (
    instance_id text PRIMARY KEY NOT NULL,
    name text NOT NULL,
    host text NOT NULL DEFAULT '',
    pid integer NOT NULL DEFAULT 0,
    started_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    registered_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    beat_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    lease_until timestamp NOT NULL,
    state text NOT NULL DEFAULT 'alive',
    details text NOT NULL DEFAULT '{}',
    CONSTRAINT process_heartbeats_state CHECK (state IN ('alive', 'lost', 'stopped'))
) WITHOUT ROWID;

CREATE TABLE /* TEMPLATE: schema */handler_receipts (
    tenant_id text NOT NULL,
    scope text NOT NULL,
    message_id text NOT NULL,
    handler_key text NOT NULL,
    status text NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    claim_version integer NOT NULL DEFAULT 0,
    last_error text,
    created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    updated_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    PRIMARY KEY (tenant_id, scope, message_id, handler_key),
    CONSTRAINT handler_receipts_status CHECK (status IN ('succeeded', 'failed'))
) WITHOUT ROWID;

CREATE INDEX /* TEMPLATE: schema */handler_receipts_updated_at_idx ON handler_receipts (updated_at);

CREATE TABLE /* TEMPLATE: schema */side_effects (
    tenant_id text NOT NULL,
    scope text NOT NULL,
    message_id text NOT NULL,
    handler_key text NOT NULL,
    effect_key text NOT NULL,
    status text NOT NULL,
    policy text NOT NULL,
    request_digest text NOT NULL DEFAULT '',
    response text,
    last_error text,
    actor_id text NOT NULL DEFAULT '',
    instance_id text NOT NULL DEFAULT '',
    claim_version integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    updated_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    PRIMARY KEY (tenant_id, scope, message_id, handler_key, effect_key),
    CONSTRAINT side_effects_status CHECK (status IN ('intent', 'succeeded', 'failed', 'in_doubt', 'not_executed'))
);

CREATE INDEX /* TEMPLATE: schema */side_effects_updated_at_idx ON side_effects (updated_at);

CREATE INDEX /* TEMPLATE: schema */side_effects_in_doubt_idx ON side_effects (updated_at) WHERE status = 'in_doubt';

CREATE TABLE /* TEMPLATE: schema */operator_log (
    id integer PRIMARY KEY AUTOINCREMENT,
    at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    operator text NOT NULL,
    action text NOT NULL,
    target text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    count integer NOT NULL DEFAULT 1,
    details text NOT NULL DEFAULT '{}'
);

CREATE INDEX /* TEMPLATE: schema */operator_log_target_idx ON operator_log (target, id);

CREATE TABLE /* TEMPLATE: schema */dispatch_locks (
    name text PRIMARY KEY NOT NULL,
    holder text NOT NULL,
    acquired_at timestamp NOT NULL DEFAULT (datetime('now', 'subsec')),
    expires_at timestamp NOT NULL
) WITHOUT ROWID;
