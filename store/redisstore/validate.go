package redisstore

import "log/slog"

// Validate returns the error with which [Open] would refuse the options. It connects to nothing, and logs
// nothing.
func (o Options) Validate() error {
	o = o.withDefaults()
	if err := o.checkLayouts(); err != nil {
		return err
	}
	o.Logger = slog.New(slog.DiscardHandler)
	o.MinIdleConns = 0 // those are opened with the client
	client, err := newClient(o)
	if err != nil {
		return err
	}
	return client.Close()
}
