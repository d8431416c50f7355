// Package riverlimits holds what River's client and its tables accept, so that it
// can be refused before with words of our own.
package riverlimits

import "regexp"

// MaxAttempts is the most attempts of a job: the column is a smallint.
const MaxAttempts = 1<<15 - 1

// QueueRule says in words what IsQueue accepts.
const QueueRule = "up to 64 letters a-z and digits, separated by single hyphens or underscores"

const maxQueue = 64

// queue is River's pattern.
var queue = regexp.MustCompile(`^(?:[a-z0-9])+(?:[_|\-]?[a-z0-9]+)*$`)

// IsQueue reports whether River accepts a queue's name.
func IsQueue(name string) bool { return len(name) <= maxQueue && queue.MatchString(name) }
