package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/oxbow-jobs/oxbow/dbtx"
	"github.com/oxbow-jobs/oxbow/outbox"
)

// App is a named group of event types and handlers that a worker runs or leaves
// out as a whole.
type App struct {
	// Name is what --installed-app calls it.
	Name string

	// Install registers the app's event types and handlers.
	Install func(in *Installer) error

	// Migrate creates the app's own tables. It must be safe to repeat. May be
	// nil.
	Migrate func(ctx context.Context, db dbtx.DB) error
}

// Installer is what an app registers with.
type Installer struct {
	// Registry holds the event types. Register a type before its handlers.
	Registry *outbox.Registry

	// Outbox inserts events, for handlers that do so on either database.
	Outbox *outbox.Client[dbtx.Tx]

	// DB is the database that the events are in.
	DB dbtx.DB

	// Logger is the process's logger.
	Logger *slog.Logger

	handlers *Handlers
}

// NewInstaller makes an installer that fills handlers.
func NewInstaller(handlers *Handlers, in Installer) *Installer {
	in.handlers = handlers
	if in.Logger == nil {
		in.Logger = slog.Default()
	}
	return &in
}

// SelectApps returns the apps with the names, or all of them if there are no
// names.
func SelectApps(apps []App, names []string) ([]App, error) {
	byName := make(map[string]App, len(apps))
	for _, app := range apps {
		if app.Name == "" || app.Install == nil {
			return nil, errors.New("oxbow: an app needs a name and an Install function")
		}
		if _, twice := byName[app.Name]; twice {
			return nil, fmt.Errorf("oxbow: two apps are named %q", app.Name)
		}
		byName[app.Name] = app
	}
	if len(names) == 0 {
		return apps, nil
	}
	selected := make([]App, 0, len(names))
	for _, name := range names {
		app, ok := byName[name]
		if !ok {
			return nil, fmt.Errorf("oxbow: no app %q is compiled into this binary; it has %s", name, appNames(apps))
		}
		delete(byName, name)
		selected = append(selected, app)
	}
	return selected, nil
}

func appNames(apps []App) string {
	text := ""
	for i, app := range apps {
		if i > 0 {
			text += ", "
		}
		text += app.Name
	}
	return text
}
