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
