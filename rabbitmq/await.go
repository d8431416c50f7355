package rabbitmq

import (
	"context"
	"fmt"
	"time"
)

// await runs a call of the library, which has no deadline, and gives the
// connection up when no answer comes, except while the broker blocks it: then it
// answers nothing, and giving it up would not help.
func (s *session) await(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(rpcTimeout)
	defer timer.Stop()
	blocked := s.alarms
	for {
		var cause error
		select {
		case err := <-done:
			return err
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			s.block(b)
			timer.Reset(rpcTimeout)
			continue
		case <-timer.C:
			if s.isBlocked() {
				timer.Reset(rpcTimeout)
				continue
			}
			cause = fmt.Errorf("no answer within %v", rpcTimeout)
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
		s.conn.socket.drop()
		<-done
		return cause
	}
}
