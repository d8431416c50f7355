DROP TABLE /* TEMPLATE: schema */dispatch_locks;
DROP TABLE /* TEMPLATE: schema */operator_log;
DROP TABLE /* TEMPLATE: schema */side_effects;
DROP TABLE /* TEMPLATE: schema */handler_receipts;
DROP TABLE /* TEMPLATE: schema */process_heartbeats;
