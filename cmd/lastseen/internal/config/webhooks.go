package config

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/redisstore"
)

// webhooksSection is the key of a file that holds webhooks.
const webhooksSection = "webhooks"

// webhookSettings are those of a webhook in the file.
type webhookSettings struct {
	URL         string `format:"receiver"`
	SecretsFile string `takes:"a file with a secret in each line, such as whsec_ and the base64 of 32 random bytes"`
	Namespaces  []auth.Pattern
	Report      webhooks.Report `format:"enum" placeholder:"online|status"`
	Hold        time.Duration   `min:"1s" max:"5m" zero:"0,0s"`
	CAFile      string          `takes:"a file with certificates in PEM"`
}

// webhookFields are the fields of a webhook in the file.
var webhookFields = sync.OnceValue(func() []Definition { return define(reflect.TypeFor[webhookSettings]()) })

// webhook is a webhook of the file.
type webhook struct {
	webhookSettings
	source string
	set    []string // the fields that are set
	ready  *webhooks.Webhook
}

// webhook reads a webhook. What says where to deliver what is required.
func (r *fileReader) webhook(name, value *yaml.Node) {
	if len(name.Value) > webhooks.MaxName || lastseen.CheckNamespace(name.Value) != nil {
		r.addf(name, "%s: %s is not a valid name; use 1 to %d of A–Z a–z 0–9 . _ -, not starting with a dot",
			webhooksSection, displayName(name.Value), webhooks.MaxName)
	}
	w := &webhook{source: r.at(name), webhookSettings: webhookSettings{Report: webhooks.Online}}
	w.set = r.fields(webhooksSection, name, value, webhookFields(), 3, &w.webhookSettings)
	r.config.webhooks[name.Value] = w
}

// Webhooks returns the webhooks in the order of their names.
func (c *Config) Webhooks() []*webhooks.Webhook {
	all := make([]*webhooks.Webhook, 0, len(c.webhooks))
	for _, name := range slices.Sorted(maps.Keys(c.webhooks)) {
		all = append(all, c.webhooks[name].ready)
	}
	return all
}

// checkWebhooks reports what is wrong with webhooks, and reads their files.
func (c *Config) checkWebhooks(e *Error) {
	for _, name := range slices.Sorted(maps.Keys(c.webhooks)) {
		w := c.webhooks[name]
		report := func(format string, args ...any) {
			e.Addf("%s: %s.%s%s", w.source, webhooksSection, displayName(name), fmt.Sprintf(format, args...))
		}
		w.prepare(name, report)
		for _, of := range c.all() {
			if setting, why := of.withoutFeed(); setting != "" && w.delivers(c, of) {
				report(".namespaces and %s: %s, and webhooks deliver changes", of.describe(setting), why)
			}
		}
	}
}

// withoutFeed returns the setting for which there is no changes feed, and why; "" if there is one.
func (s *Values) withoutFeed() (setting, why string) {
	const shared = "a set that other programs can write has no changes feed"
	switch {
	case s.Changes == feed.Off:
		return "changes", "the namespace has no changes feed"
	case !s.OnRedis():
	case s.RedisKey != "":
		return "redis-key", shared
	case s.RedisScoreUnit != redisstore.Milliseconds || s.server != nil && s.isSet("redis-score-unit"):
		return "redis-score-unit", shared
	case strings.ContainsAny(s.RedisPrefix, "{}"):
		return "redis-prefix", "a changes feed requires a prefix without braces"
	}
	return "", ""
}

// delivers reports whether a webhook is for a namespace, or for some that are not configured.
func (w *webhook) delivers(c *Config, of *Values) bool {
	for _, p := range w.Namespaces {
		for _, name := range c.Names() {
			if c.namespaces[name] == of && p.Match(name) {
				return true
			}
		}
		if of.server == nil && !c.Configured(string(p)) {
			return true
		}
	}
	return false
}

// prepare reads the files of a webhook.
func (w *webhook) prepare(name string, report func(format string, args ...any)) {
	w.ready = &webhooks.Webhook{
		Name: name, Report: w.Report, Hold: w.Hold,
		Namespaces: func(namespace string) bool {
			return auth.MatchAny(w.Namespaces, namespace)
		},
	}
	if w.URL != "" {
		w.ready.URL, _ = url.Parse(w.URL) // it is valid
	}
	secrets, roots := w.read(w.SecretsFile, "secrets-file", report), w.read(w.CAFile, "ca-file", report)
	if secrets != nil {
		parsed, err := webhooks.ParseSecrets(secrets)
		if err != nil {
			report(".secrets-file: %v", err)
		}
		w.ready.Secrets = parsed
	}
	if roots != nil {
		w.ready.RootCAs = x509.NewCertPool()
		if !w.ready.RootCAs.AppendCertsFromPEM(roots) {
			report(".ca-file: %v", errors.New("there is no certificate in PEM"))
		}
	}
	sum := sha256.New()
	for _, part := range [][]byte{
		fmt.Appendf(nil, "%q %q %v %v", w.URL, w.Namespaces, w.Report, w.Hold), bytes.TrimSpace(secrets), roots,
	} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	w.ready.Entry = hex.EncodeToString(sum.Sum(nil))
}

// read returns the content of a file of a webhook; nil without one. Errors do not name the file: some users set the
// secret itself.
func (w *webhook) read(name, field string, report func(format string, args ...any)) []byte {
	if name == "" {
		return nil
	}
	content, err := ReadText(name)
	if err != nil {
		report(".%s: %v", field, err)
		return nil
	}
	return content
}

// compareWebhook adds what differs in a webhook, without its URL and its secrets.
func (d *Difference) compareWebhook(path string, a, b *webhook) {
	if d.addExistence(path, a != nil, b != nil); a == nil || b == nil || a.ready.Entry == b.ready.Entry {
		return
	}
	d.Changes = append(d.Changes, path+" changed")
}

// print writes a webhook as a comment, since it is not complete without its URL.
func (w *webhook) print(b *strings.Builder, name string) {
	fmt.Fprintf(b, "#   %s: # %s\n", quoted(name, true), w.source)
	for _, field := range webhookFields()[1:] {
		var value string
		switch v := field.field(&w.webhookSettings).Interface().(type) {
		case []auth.Pattern:
			items := make([]string, len(v))
			for k, p := range v {
				items[k] = quoted(string(p), true)
			}
			value = "[" + strings.Join(items, ", ") + "]"
		case string:
			value = quoted(v, true)
		default:
			value = fmt.Sprint(v)
		}
		if slices.Contains(w.set, field.Name) {
			fmt.Fprintf(b, "#     %s: %s\n", field.Name, value)
		}
	}
}
