package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store/redisstore"
)

// settings are all that can be set for the service, by flag or environment variable.
type settings struct {
	Listen string   `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on (${default}). There is no authentication yet: keep it private."`
	Store  string   `default:"lastseen.db" placeholder:"FILE|URL" help:"Where the data is: a file, or redis://[user:password@]host:port[/db], redis+sentinel://host,host?master=NAME, redis+cluster://host,host, or rediss… for TLS (${default})."`
	Sync   duration `default:"1s" placeholder:"DURATION" help:"File store: time between flushes to the disk, the most that a crash can lose. 0 answers every write after its flush (${default})."`

	Green        duration  `default:"60s" placeholder:"DURATION" help:"Age at which a user turns from green to yellow (${default})."`
	Yellow       duration  `default:"5m" placeholder:"DURATION" help:"Age at which a user turns from yellow to grey (${default})."`
	PingInterval duration  `default:"30s" placeholder:"DURATION" help:"How often clients are told to ping (${default})."`
	Retention    retention `default:"off" placeholder:"DURATION" help:"Erase users not seen for so long, at least as long as yellow; or off (${default})."`

	Redis redisSettings `embed:"" prefix:"redis-"`
}

// redisSettings are those of the Redis store.
type redisSettings struct {
	Prefix       string   `default:"presence:" placeholder:"TEXT" help:"Redis store: what every key begins with (${default})."`
	Shards       int      `default:"1" placeholder:"N" help:"Redis store: sorted sets that a namespace is spread over, 1 to 64 (${default})."`
	Timeout      duration `default:"250ms" placeholder:"DURATION" help:"Redis store: limit of one call, connecting and retrying included (${default})."`
	DialTimeout  duration `default:"200ms" placeholder:"DURATION" help:"Redis store: limit of one attempt to connect (${default})."`
	PoolSize     int      `default:"0" placeholder:"N" help:"Redis store: connections at most, to each Redis; 0 for 10 a processor, 5 in a Cluster (${default})."`
	MinIdleConns int      `default:"0" placeholder:"N" help:"Redis store: connections kept open when idle, to each Redis (${default})."`
	MaxRetries   int      `default:"1" placeholder:"N" help:"Redis store: times a call is repeated after a network error (${default})."`
}

// settingError is the error of a setting that is wrong by itself or beside another.
type settingError struct{ text string }

func (e *settingError) Error() string { return e.text }

func wrongSetting(format string, args ...any) error {
	return &settingError{fmt.Sprintf(format, args...)}
}

// duration is a setting that is a duration; a bare number is refused, but for zero.
type duration time.Duration

// UnmarshalText reads the setting; see [encoding.TextUnmarshaler].
func (d *duration) UnmarshalText(text []byte) error {
	if string(text) == "0" || string(text) == "0s" {
		*d = 0
		return nil
	}
	parsed, err := lastseen.ParseConfigDuration(string(text))
	*d = duration(parsed)
	return err
}

// retention is a setting that is a duration or "off", which is zero.
type retention time.Duration

// UnmarshalText reads the setting; see [encoding.TextUnmarshaler].
func (r *retention) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*r = 0
		return nil
	}
	parsed, err := lastseen.ParseConfigDuration(string(text))
	*r = retention(parsed)
	return err
}

// validate returns an error that names the settings which are wrong, and what they accept.
func (s *settings) validate() error {
	for name, d := range map[string]duration{
		"green": s.Green, "yellow": s.Yellow, "ping-interval": s.PingInterval,
		"redis-timeout": s.Redis.Timeout, "redis-dial-timeout": s.Redis.DialTimeout,
	} {
		if d == 0 {
			return wrongSetting("--%s is 0: it is at least 1ms", name)
		}
	}
	if err := s.thresholds().Validate(); err != nil {
		return wrongSetting("--green and --yellow: %v", err)
	}
	if s.Redis.Shards < redisstore.MinShards || s.Redis.Shards > redisstore.MaxShards {
		return wrongSetting("--redis-shards is %d: it is %d to %d", s.Redis.Shards, redisstore.MinShards, redisstore.MaxShards)
	}
	for name, n := range map[string]int{
		"redis-pool-size": s.Redis.PoolSize, "redis-min-idle-conns": s.Redis.MinIdleConns, "redis-max-retries": s.Redis.MaxRetries,
	} {
		if n < 0 {
			return wrongSetting("--%s is %d: it cannot be negative", name, n)
		}
	}
	switch {
	case s.Retention != 0 && time.Duration(s.Retention) < time.Duration(s.Yellow):
		return wrongSetting("--retention is %s: it is off, or at least --yellow (%s)", time.Duration(s.Retention), time.Duration(s.Yellow))
	case s.Store == "":
		return wrongSetting("--store is empty: give a file or a redis:// URL")
	case s.Redis.Prefix == "":
		return wrongSetting("--redis-prefix is empty: keys need one, as in presence:")
	}
	return nil
}

// onRedis reports whether the store is a Redis and not a file.
func (s *settings) onRedis() bool { return strings.Contains(s.Store, "://") }

func (s *settings) thresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: time.Duration(s.Green), Yellow: time.Duration(s.Yellow)}
}

// namespace returns the settings of a namespace: for now the same for all.
func (s *settings) namespace(string) api.Settings {
	shards := 1
	if s.onRedis() {
		shards = s.Redis.Shards
	}
	return api.Settings{
		Thresholds: s.thresholds(), PingInterval: time.Duration(s.PingInterval),
		Retention: time.Duration(s.Retention), Shards: shards,
	}
}
