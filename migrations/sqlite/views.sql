-- The documented record over River's rows, for the sqlite3 shell and reports; Oxbow
-- itself does not read these views. The same definition in Go is outbox.Record.
--
-- Values that are not JSON are taken as empty: one odd row must not hide the others.

CREATE VIEW outbox_events AS
SELECT
    CASE WHEN json_type(j.a, '$.id') = 'text' THEN j.a ->> '$.id' END AS id,
    CASE WHEN json_type(j.a, '$.tenant_id') = 'text' THEN j.a ->> '$.tenant_id' END AS tenant_id,
    CASE WHEN substr(j.stem, -2) = '/v' AND length(j.stem) > 9 AND length(j.kind) - length(j.stem) BETWEEN 1 AND 18 THEN substr(j.kind, 8, length(j.stem) - 9) END AS event_type,
    CASE WHEN substr(j.stem, -2) = '/v' AND length(j.stem) > 9 AND length(j.kind) - length(j.stem) BETWEEN 1 AND 18 THEN CAST(substr(j.kind, length(j.stem) + 1) AS integer) END AS event_version,
    CASE WHEN json_type(j.a, '$.aggregate_type') = 'text' THEN nullif(j.a ->> '$.aggregate_type', '') END AS aggregate_type,
    CASE WHEN json_type(j.a, '$.aggregate_id') = 'text' THEN nullif(j.a ->> '$.aggregate_id', '') END AS aggregate_id,
    j.a -> '$.payload' AS payload,
    j.status,
    coalesce(CAST(round(unixepoch(j.attempted_at, 'subsec') * 1000) AS integer) * 1000, 0) AS claim_version,
    j.attempt AS attempt_count,
    j.max_attempts,
    CASE WHEN j.status = 'failed' THEN j.scheduled_at END AS next_retry_at,
    j.locked_by,
    h.lease_until AS locked_until,
    CASE WHEN j.failed AND json_type(j.e, '$[#-1].error') = 'text' THEN j.e ->> '$[#-1].error' END AS last_error,
    CASE WHEN j.state = 'completed' THEN j.finalized_at END AS published_at,
    CASE
        WHEN j.state = 'cancelled' THEN 'cancelled'
        WHEN j.state = 'discarded' AND json_type(j.m, '$."oxbow:dead_letter_reason"') = 'text'
            THEN coalesce(nullif(j.m ->> '$."oxbow:dead_letter_reason"', ''), 'attempts_exhausted')
        WHEN j.state = 'discarded' THEN 'attempts_exhausted'
    END AS dead_letter_reason,
    j.created_at
FROM (
    SELECT s.*, CASE
        WHEN s.state = 'completed' THEN 'published'
        WHEN s.state = 'running' THEN 'publishing'
        WHEN s.state IN ('discarded', 'cancelled') THEN 'dead_letter'
        WHEN s.state = 'retryable' OR s.failed THEN 'failed'
        ELSE 'pending'
    END AS status
    FROM (
        SELECT g.*,
            json_array_length(g.e) > max(0, CASE
                WHEN json_type(g.m, '$."oxbow:errors_before"') IN ('integer', 'real') THEN g.m ->> '$."oxbow:errors_before"'
                ELSE 0
            END) AS failed,
            CASE WHEN g.state = 'running' AND json_type(g.b, '$[#-1]') = 'text' THEN g.b ->> '$[#-1]' END AS locked_by
        FROM (
            SELECT r.kind, r.state, r.attempt, r.max_attempts, r.attempted_at, r.scheduled_at, r.finalized_at, r.created_at,
                rtrim(r.kind, '0123456789') AS stem,
                CASE WHEN json_valid(r.args, 9) THEN r.args ELSE '{}' END AS a,
                CASE WHEN json_valid(r.metadata, 9) THEN r.metadata ELSE '{}' END AS m,
                CASE WHEN json_valid(r.errors, 9) THEN CASE WHEN json_type(r.errors) = 'array' THEN r.errors ELSE '[]' END ELSE '[]' END AS e,
                CASE WHEN json_valid(r.attempted_by, 9) THEN r.attempted_by ELSE '[]' END AS b
            FROM river_job r
            WHERE r.kind >= 'outbox/' AND r.kind < 'outbox0'
        ) g
    ) s
) j
LEFT JOIN process_heartbeats h ON h.instance_id = j.locked_by;

-- Inbox kinds are inbox/<consumer>/<type>/v<version>.
CREATE VIEW inbox_messages AS
SELECT
    CASE WHEN json_type(j.a, '$.id') = 'text' THEN j.a ->> '$.id' END AS id,
    CASE WHEN json_type(j.a, '$.tenant_id') = 'text' THEN j.a ->> '$.tenant_id' END AS tenant_id,
    j.consumer,
    CASE WHEN substr(j.stem, -2) = '/v' AND length(j.stem) > length(j.consumer) + 9 AND length(j.kind) - length(j.stem) BETWEEN 1 AND 18 THEN substr(j.kind, length(j.consumer) + 8, length(j.stem) - length(j.consumer) - 9) END AS event_type,
    CASE WHEN substr(j.stem, -2) = '/v' AND length(j.stem) > length(j.consumer) + 9 AND length(j.kind) - length(j.stem) BETWEEN 1 AND 18 THEN CAST(substr(j.kind, length(j.stem) + 1) AS integer) END AS event_version,
    CASE WHEN json_type(j.a, '$.aggregate_type') = 'text' THEN nullif(j.a ->> '$.aggregate_type', '') END AS aggregate_type,
    CASE WHEN json_type(j.a, '$.aggregate_id') = 'text' THEN nullif(j.a ->> '$.aggregate_id', '') END AS aggregate_id,
    j.a -> '$.payload' AS payload,
    j.status,
    coalesce(CAST(round(unixepoch(j.attempted_at, 'subsec') * 1000) AS integer) * 1000, 0) AS claim_version,
    j.attempt AS attempt_count,
    j.max_attempts,
    CASE WHEN j.status = 'failed' THEN j.scheduled_at END AS next_retry_at,
    j.locked_by,
    h.lease_until AS locked_until,
    CASE WHEN j.failed AND json_type(j.e, '$[#-1].error') = 'text' THEN j.e ->> '$[#-1].error' END AS last_error,
    CASE WHEN j.state = 'completed' THEN j.finalized_at END AS published_at,
    CASE
        WHEN j.state = 'cancelled' THEN 'cancelled'
        WHEN j.state = 'discarded' AND json_type(j.m, '$."oxbow:dead_letter_reason"') = 'text'
            THEN coalesce(nullif(j.m ->> '$."oxbow:dead_letter_reason"', ''), 'attempts_exhausted')
        WHEN j.state = 'discarded' THEN 'attempts_exhausted'
    END AS dead_letter_reason,
    j.created_at
FROM (
    SELECT s.*, CASE
        WHEN s.state = 'completed' THEN 'published'
        WHEN s.state = 'running' THEN 'publishing'
        WHEN s.state IN ('discarded', 'cancelled') THEN 'dead_letter'
        WHEN s.state = 'retryable' OR s.failed THEN 'failed'
        ELSE 'pending'
    END AS status
    FROM (
        SELECT g.*,
            json_array_length(g.e) > max(0, CASE
                WHEN json_type(g.m, '$."oxbow:errors_before"') IN ('integer', 'real') THEN g.m ->> '$."oxbow:errors_before"'
                ELSE 0
            END) AS failed,
            CASE WHEN g.state = 'running' AND json_type(g.b, '$[#-1]') = 'text' THEN g.b ->> '$[#-1]' END AS locked_by
        FROM (
            SELECT r.kind, r.state, r.attempt, r.max_attempts, r.attempted_at, r.scheduled_at, r.finalized_at, r.created_at,
                rtrim(r.kind, '0123456789') AS stem,
                substr(r.kind, 7, instr(substr(r.kind, 7) || '/', '/') - 1) AS consumer,
                CASE WHEN json_valid(r.args, 9) THEN r.args ELSE '{}' END AS a,
                CASE WHEN json_valid(r.metadata, 9) THEN r.metadata ELSE '{}' END AS m,
                CASE WHEN json_valid(r.errors, 9) THEN CASE WHEN json_type(r.errors) = 'array' THEN r.errors ELSE '[]' END ELSE '[]' END AS e,
                CASE WHEN json_valid(r.attempted_by, 9) THEN r.attempted_by ELSE '[]' END AS b
            FROM river_job r
            WHERE r.kind >= 'inbox/' AND r.kind < 'inbox0'
        ) g
    ) s
) j
LEFT JOIN process_heartbeats h ON h.instance_id = j.locked_by;
