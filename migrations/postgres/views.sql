-- The documented record over River's rows, for psql and reports; Oxbow itself does
-- not read these views. The same definition in Go is outbox.Record.
--
-- No cast here can fail: one odd row must not hide the others.

CREATE OR REPLACE VIEW /* TEMPLATE: schema */outbox_events AS
SELECT
    CASE WHEN jsonb_typeof(j.args -> 'id') = 'string' THEN j.args ->> 'id' END AS id,
    CASE WHEN jsonb_typeof(j.args -> 'tenant_id') = 'string' THEN j.args ->> 'tenant_id' END AS tenant_id,
    CASE WHEN k.ok THEN substr(j.kind, 8, length(k.stem) - 9) END AS event_type,
    CASE WHEN k.ok THEN substr(j.kind, length(k.stem) + 1)::bigint END AS event_version,
    CASE WHEN jsonb_typeof(j.args -> 'aggregate_type') = 'string' THEN nullif(j.args ->> 'aggregate_type', '') END AS aggregate_type,
    CASE WHEN jsonb_typeof(j.args -> 'aggregate_id') = 'string' THEN nullif(j.args ->> 'aggregate_id', '') END AS aggregate_id,
    j.args -> 'payload' AS payload,
    s.status,
    CASE WHEN isfinite(j.attempted_at) THEN (extract(epoch FROM j.attempted_at) * 1000000)::bigint ELSE 0 END AS claim_version,
    j.attempt AS attempt_count,
    j.max_attempts,
    CASE WHEN s.status = 'failed' THEN j.scheduled_at END AS next_retry_at,
    CASE WHEN j.state = 'running' THEN j.attempted_by[cardinality(j.attempted_by)] END AS locked_by,
    h.lease_until AS locked_until,
    CASE WHEN f.failed AND jsonb_typeof(f.last -> 'error') = 'string' THEN f.last ->> 'error' END AS last_error,
    CASE WHEN j.state = 'completed' THEN j.finalized_at END AS published_at,
    CASE
        WHEN j.state = 'cancelled' THEN 'cancelled'
        WHEN j.state = 'discarded' AND jsonb_typeof(j.metadata -> 'oxbow:dead_letter_reason') = 'string'
            THEN coalesce(nullif(j.metadata ->> 'oxbow:dead_letter_reason', ''), 'attempts_exhausted')
        WHEN j.state = 'discarded' THEN 'attempts_exhausted'
    END AS dead_letter_reason,
    j.created_at
FROM /* TEMPLATE: schema */river_job j
CROSS JOIN LATERAL (
    SELECT
        coalesce(cardinality(j.errors), 0) > greatest(0, CASE
            WHEN jsonb_typeof(j.metadata -> 'oxbow:errors_before') = 'number' THEN (j.metadata ->> 'oxbow:errors_before')::numeric
            ELSE 0
        END) AS failed,
        j.errors[cardinality(j.errors)] AS last
) f
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN j.state = 'completed' THEN 'published'
        WHEN j.state = 'running' THEN 'publishing'
        WHEN j.state IN ('discarded', 'cancelled') THEN 'dead_letter'
        WHEN j.state = 'retryable' OR f.failed THEN 'failed'
        ELSE 'pending'
    END AS status
) s
CROSS JOIN LATERAL (SELECT rtrim(j.kind, '0123456789') AS stem) r
CROSS JOIN LATERAL (
    SELECT r.*, right(r.stem, 2) = '/v' AND length(r.stem) > 9 AND length(j.kind) - length(r.stem) BETWEEN 1 AND 18 AS ok
) k
LEFT JOIN /* TEMPLATE: schema */process_heartbeats h
    ON j.state = 'running' AND h.instance_id = j.attempted_by[cardinality(j.attempted_by)]
WHERE j.kind LIKE 'outbox/%';

-- Inbox kinds are inbox/<consumer>/<type>/v<version>.
CREATE OR REPLACE VIEW /* TEMPLATE: schema */inbox_messages AS
SELECT
    CASE WHEN jsonb_typeof(j.args -> 'id') = 'string' THEN j.args ->> 'id' END AS id,
    CASE WHEN jsonb_typeof(j.args -> 'tenant_id') = 'string' THEN j.args ->> 'tenant_id' END AS tenant_id,
    k.consumer,
    CASE WHEN k.ok THEN substr(j.kind, length(k.consumer) + 8, length(k.stem) - length(k.consumer) - 9) END AS event_type,
    CASE WHEN k.ok THEN substr(j.kind, length(k.stem) + 1)::bigint END AS event_version,
    CASE WHEN jsonb_typeof(j.args -> 'aggregate_type') = 'string' THEN nullif(j.args ->> 'aggregate_type', '') END AS aggregate_type,
    CASE WHEN jsonb_typeof(j.args -> 'aggregate_id') = 'string' THEN nullif(j.args ->> 'aggregate_id', '') END AS aggregate_id,
    j.args -> 'payload' AS payload,
    s.status,
    CASE WHEN isfinite(j.attempted_at) THEN (extract(epoch FROM j.attempted_at) * 1000000)::bigint ELSE 0 END AS claim_version,
    j.attempt AS attempt_count,
    j.max_attempts,
    CASE WHEN s.status = 'failed' THEN j.scheduled_at END AS next_retry_at,
    CASE WHEN j.state = 'running' THEN j.attempted_by[cardinality(j.attempted_by)] END AS locked_by,
    h.lease_until AS locked_until,
    CASE WHEN f.failed AND jsonb_typeof(f.last -> 'error') = 'string' THEN f.last ->> 'error' END AS last_error,
    CASE WHEN j.state = 'completed' THEN j.finalized_at END AS published_at,
    CASE
        WHEN j.state = 'cancelled' THEN 'cancelled'
        WHEN j.state = 'discarded' AND jsonb_typeof(j.metadata -> 'oxbow:dead_letter_reason') = 'string'
            THEN coalesce(nullif(j.metadata ->> 'oxbow:dead_letter_reason', ''), 'attempts_exhausted')
        WHEN j.state = 'discarded' THEN 'attempts_exhausted'
    END AS dead_letter_reason,
    j.created_at
FROM /* TEMPLATE: schema */river_job j
CROSS JOIN LATERAL (
    SELECT
        coalesce(cardinality(j.errors), 0) > greatest(0, CASE
            WHEN jsonb_typeof(j.metadata -> 'oxbow:errors_before') = 'number' THEN (j.metadata ->> 'oxbow:errors_before')::numeric
            ELSE 0
        END) AS failed,
        j.errors[cardinality(j.errors)] AS last
) f
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN j.state = 'completed' THEN 'published'
        WHEN j.state = 'running' THEN 'publishing'
        WHEN j.state IN ('discarded', 'cancelled') THEN 'dead_letter'
        WHEN j.state = 'retryable' OR f.failed THEN 'failed'
        ELSE 'pending'
    END AS status
) s
CROSS JOIN LATERAL (SELECT rtrim(j.kind, '0123456789') AS stem, split_part(j.kind, '/', 2) AS consumer) r
CROSS JOIN LATERAL (
    SELECT r.*, right(r.stem, 2) = '/v' AND length(r.stem) > length(r.consumer) + 9 AND length(j.kind) - length(r.stem) BETWEEN 1 AND 18 AS ok
) k
LEFT JOIN /* TEMPLATE: schema */process_heartbeats h
    ON j.state = 'running' AND h.instance_id = j.attempted_by[cardinality(j.attempted_by)]
WHERE j.kind LIKE 'inbox/%';
