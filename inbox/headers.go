package inbox

// The headers of an event on its way to another service. The package rabbitmq
// writes them.
const (
	HeaderMessageID     = "oxbow-message-id" // the event's id, the same at every try
	HeaderEventVersion  = "oxbow-event-version"
	HeaderTenantID      = "oxbow-tenant-id"
	HeaderActorID       = "oxbow-actor-id"
	HeaderRequestID     = "oxbow-request-id"
	HeaderCausationID   = "oxbow-causation-id"
	HeaderAggregateType = "oxbow-aggregate-type"
	HeaderAggregateID   = "oxbow-aggregate-id"
	HeaderClaimVersion  = "oxbow-claim-version"
	HeaderTraceParent   = "traceparent"
	HeaderCloudEvents   = "cloudEvents:" // prefix of the CloudEvents attributes
)

// cloudEventsOther is how other senders spell the prefix.
const cloudEventsOther = "cloudEvents_"
