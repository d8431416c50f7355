package operate

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/oxbow-jobs/oxbow/dbtx"
)

// PlannedQuery is a composed query, for tests that look at its plan.
type PlannedQuery struct {
	SQL  string
	Args []any
}

// PlanFind is the look-up of an event by its id.
func PlanFind(tx dbtx.Tx, id string) PlannedQuery {
	w := newWhere(tx, Scope{})
	event := uuid.MustParse(id)
	w.addEach(whereUnique, event[:])
	return PlannedQuery{w.sql(sqlJobs, "LIMIT 2"), w.args}
}

// PlanDeadLetters is the first page of dead letters.
func PlanDeadLetters(tx dbtx.Tx) PlannedQuery {
	w, err := (&DeadLetterFilter{}).where(context.Background(), tx)
	if err != nil {
		panic(err)
	}
	return PlannedQuery{w.sql(sqlJobs, fmt.Sprintf("ORDER BY j.finalized_at DESC, j.id DESC LIMIT %d", DefaultLimit)), w.args}
}

// PlanGauges are the queries that a scrape of the metrics causes, on a table
// too large to count.
func PlanGauges(tx dbtx.Tx) []PlannedQuery {
	return []PlannedQuery{
		{sqlSampleState.For(tx), []any{"available", ExactUpTo}},
		{sqlSampleDead.For(tx), []any{ExactUpTo}},
		{sqlOldestDue.For(tx), []any{"outbox/"}},
		{sqlIDRange.For(tx), nil},
		{sqlEstimateState.For(tx), []any{"completed", "outbox/"}},
		{sqlCountInDoubt.For(tx), []any{ExactUpTo}},
	}
}
