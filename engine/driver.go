package engine

import (
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivershared/baseservice"
	"github.com/riverqueue/river/rivershared/riverpilot"
)

// driver is a River driver that supplies our pilot. River picks it up through
// two methods that it keeps for River Pro; they are the whole seam, and
// contract_test.go fails when an upgrade of River changes them.
type driver[TTx any] struct {
	riverdriver.Driver[TTx]
	pilot *pilot
}

// plugin is what a driver implements that brings a pilot along.
type plugin interface {
	PluginInit(archetype *baseservice.Archetype)
	PluginPilot() riverpilot.Pilot
}

// wrapDriver wraps inner; a pilot that inner brings is kept and delegated to.
func wrapDriver[TTx any](inner riverdriver.Driver[TTx], c *core) *driver[TTx] {
	p := &pilot{Pilot: &riverpilot.StandardPilot{}, core: c}
	if brings, ok := inner.(plugin); ok {
		if own := brings.PluginPilot(); own != nil {
			p.Pilot = own
		}
	}
	return &driver[TTx]{Driver: inner, pilot: p}
}

// PluginInit implements River's driver plugin.
func (d *driver[TTx]) PluginInit(archetype *baseservice.Archetype) {
	if brings, ok := d.Driver.(plugin); ok {
		brings.PluginInit(archetype)
	}
}

// GetListener implements riverdriver.Driver.
func (d *driver[TTx]) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &nudgedListener{Listener: d.Driver.GetListener(params), pace: d.pilot.core.pace}
}

// PluginPilot implements River's driver plugin.
func (d *driver[TTx]) PluginPilot() riverpilot.Pilot { return d.pilot }
