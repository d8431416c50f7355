package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// hardStopAfter is how long the second signal waits for the program to interrupt
// what runs and to print its result, for which a loaded machine takes a while,
// before it ends the process. The third does not wait.
const hardStopAfter = stopNowWait + 5*time.Second

// Main runs the program with the process's arguments and signals and returns the
// exit code. SIGTERM or SIGINT asks it to finish what runs; the second one stops
// it at once, and a third ends the process whatever it does.
func Main(p *Program) int {
	ctx, soft := context.WithCancel(context.Background())
	defer soft()
	hard := make(chan struct{})

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	go func() {
		<-signals
		soft()
		<-signals
		close(hard)
		select {
		case <-signals:
		case <-time.After(hardStopAfter):
		}
		os.Exit(exitFailed)
	}()
	return p.Run(context.WithValue(ctx, hardStopKey{}, (<-chan struct{})(hard)), os.Args[1:], os.Stdout, os.Stderr)
}

type hardStopKey struct{}

// hardStop is closed when the second signal came; it is nil, and blocks for ever,
// where no signals are listened to.
func hardStop(ctx context.Context) <-chan struct{} {
	hard, _ := ctx.Value(hardStopKey{}).(<-chan struct{})
	return hard
}
