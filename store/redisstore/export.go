package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file reads all that is kept, to copy it to another store. docs/decisions/redis-keys.md has the keys.

// Export calls a function with all that is kept of each user, in no order, and with "" for each namespace. The contacts
// of an owner come in a call of their own. What was written meanwhile, or by other programs in another form, may be
// missing; so are the hidden times in namespaces that do not exist any longer.
func Export(ctx context.Context, s *Store, keep func(namespace, user string, k store.Kept)) error {
	names, err := s.toExport(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		c, err := openCopier(ctx, s, name)
		if err != nil {
			return err
		}
		keep(name, "", store.Kept{})
		if err := c.export(ctx, func(user string, k store.Kept) { keep(name, user, k) }); err != nil {
			return err
		}
	}
	return nil
}

// toExport returns the namespaces in the list, and those with a key of their own that have users.
func (s *Store) toExport(ctx context.Context) (names []string, err error) {
	for after := ""; ; after = names[len(names)-1] {
		page, err := s.Namespaces(ctx, after, maxChunk)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			names = append(names, n.Name)
		}
		if len(page) < maxChunk {
			break
		}
	}
	for name := range s.keys.layouts {
		if newest, err := s.Newest(ctx, name); err != nil {
			return nil, err
		} else if newest != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// copier copies one namespace.
type copier struct {
	*Store
	namespace
	has map[string]sides // by the key of the shard
}

// openCopier checks that a namespace is stored as this program is set to.
func openCopier(ctx context.Context, s *Store, name string) (*copier, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	has, err := s.sidesOf(ctx, ns)
	c := &copier{Store: s, namespace: ns, has: map[string]sides{}}
	for i, key := range ns.all() {
		c.has[key] = has[i]
	}
	return c, err
}

func (c *copier) export(ctx context.Context, keep func(user string, k store.Kept)) error {
	for at, more := store.Position(""), true; more; more = at != "" {
		users, next, err := c.ScanUsers(ctx, c.name, at, maxChunk)
		if err != nil {
			return err
		}
		at = next
		all, err := c.read(ctx, users)
		if err != nil {
			return err
		}
		for i, k := range all {
			if k.State.Known() && lastseen.CheckUser(users[i]) == nil { // other programs can write any name
				keep(users[i], k)
			}
		}
	}
	for _, key := range c.all() {
		if err := c.exportUnseen(ctx, key, keep); err != nil {
			return err
		}
		if err := c.exportContacts(ctx, key, keep); err != nil {
			return err
		}
	}
	return nil
}

// exportUnseen calls a function with the users of a shard without a state of whom something else is kept.
func (c *copier) exportUnseen(ctx context.Context, key string, keep func(user string, k store.Kept)) error {
	scans := map[string]func(cursor uint64) *redis.ScanCmd{
		"d": func(at uint64) *redis.ScanCmd { return c.client.HScan(ctx, c.sideKey(key, 'd'), at, "", maxChunk) },
		"h": func(at uint64) *redis.ScanCmd { return c.client.ZScan(ctx, c.sideKey(key, 'h'), at, "", maxChunk) },
	}
	for letter, scan := range scans {
		for at, more := uint64(0), c.has[key].has(letter); more; more = at != 0 {
			found, next, err := scan(at).Result()
			if err != nil {
				return redisclient.Translate(err)
			}
			at = next
			var users []string
			for i := 0; i < len(found); i += 2 { // fields and values, or members and scores
				if found[i] != "" {
					users = append(users, found[i])
				}
			}
			all, err := c.read(ctx, users)
			if err != nil {
				return err
			}
			for i, k := range all {
				if !k.State.Known() {
					keep(users[i], k)
				}
			}
		}
	}
	return nil
}

// exportContacts calls a function with the contacts of each owner in a shard.
func (c *copier) exportContacts(ctx context.Context, key string, keep func(user string, k store.Kept)) error {
	if !c.has[key].has("c") {
		return nil
	}
	owner, contacts := "", []string(nil)
	finish := func() error {
		if len(contacts) == 0 {
			return nil
		}
		used, err := c.client.ZScore(ctx, c.sideKey(key, 'u'), owner).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return redisclient.Translate(err)
		}
		keep(owner, store.Kept{Contacts: contacts, Used: lastseen.Instant(used)})
		return nil
	}
	for after := "-"; after != ""; {
		page, err := c.client.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: c.sideKey(key, 'c'), ByLex: true, Start: after, Stop: "+", Count: maxChunk,
		}).Result()
		if err != nil {
			return redisclient.Translate(err)
		}
		after = ""
		for _, member := range page {
			after = "(" + member
			of, contact, ok := strings.Cut(member, "\x00")
			if !ok {
				continue
			}
			if of != owner {
				if err := finish(); err != nil {
					return err
				}
				owner, contacts = of, nil
			}
			contacts = append(contacts, contact)
		}
	}
	return finish()
}

// read returns what is kept of users, but for contacts.
func (c *copier) read(ctx context.Context, users []string) ([]store.Kept, error) {
	kept := make([]store.Kept, len(users))
	pipe := c.client.Pipeline()
	var reads []func()
	user := func(at int) any { return &users[at] }
	for _, chunk := range c.split(len(users), maxChunk, func(i int) string { return users[i] }) {
		scores := func(key string, set func(at int, score float64)) {
			cmd := redis.NewFloatSliceCmd(ctx, chunk.command("zmscore", key, user)...) // 0 for none
			_ = pipe.Process(ctx, cmd)                                                 // only queues it
			reads = append(reads, func() {
				for i, score := range cmd.Val() {
					set(chunk.index[i], score)
				}
			})
		}
		texts := func(letter rune, set func(at int, text string)) {
			if !c.has[chunk.key].has(string(letter)) {
				return
			}
			cmd := redis.NewSliceCmd(ctx, chunk.command("hmget", c.sideKey(chunk.key, letter), user)...)
			_ = pipe.Process(ctx, cmd)
			reads = append(reads, func() {
				for i, text := range cmd.Val() {
					if text, ok := text.(string); ok {
						set(chunk.index[i], text)
					}
				}
			})
		}
		scores(chunk.key, func(at int, score float64) { kept[at].State = c.state(score) })
		texts('r', func(at int, text string) {
			if d, ok := parseDevices(text); ok && kept[at].State.Known() {
				kept[at].Devices = d
			}
		})
		texts('d', func(at int, text string) {
			d, _ := parseDetails(text)
			kept[at].Availability = d.Availability
		})
		if c.has[chunk.key].has("h") {
			scores(c.sideKey(chunk.key, 'h'), func(at int, end float64) { kept[at].Hidden = hiddenOf(end) })
		}
		texts('p', func(at int, text string) {
			if h := &kept[at].Hidden; h.End != 0 {
				a, ok := parsePrivate(text)
				h.Ended, h.Until, h.Note = ok && a.Availability == "", 0, ""
				if ok && !h.Ended {
					h.Until, h.Note = a.Until, a.Note
				}
			}
		})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, redisclient.Translate(err)
	}
	for _, read := range reads {
		read()
	}
	return kept, c.readMetas(ctx, users, kept)
}

// hiddenOf returns the hidden time with a score.
func hiddenOf(end float64) (h store.KeptHidden) {
	switch {
	case math.IsInf(end, 1):
		h.End = lastseen.MaxInstant
	case end > 0:
		h.End = lastseen.Instant(end)
	}
	h.Ended = h.End != 0 // unless the private availability says otherwise
	return h
}

// readMetas adds what clients sent about devices.
func (c *copier) readMetas(ctx context.Context, users []string, kept []store.Kept) error {
	pipe := c.client.Pipeline()
	cmds := map[int]*redis.SliceCmd{}
	for i, k := range kept {
		key := c.of(users[i])
		if len(k.Devices.Records) == 0 || !c.has[key].has("m") {
			continue
		}
		var fields []string
		for _, r := range k.Devices.Records {
			fields = append(fields, metaField(users[i], r.ID))
		}
		cmds[i] = pipe.HMGet(ctx, c.sideKey(key, 'm'), fields...)
	}
	_, err := pipe.Exec(ctx)
	for i, cmd := range cmds {
		for n, text := range cmd.Val() {
			text, _ := text.(string)
			if text == "" {
				continue
			}
			if kept[i].Meta == nil {
				kept[i].Meta = map[string]string{}
			}
			kept[i].Meta[kept[i].Devices.Records[n].ID] = text
		}
	}
	return redisclient.Translate(err)
}

func metaField(user, record string) string { return user + "\n" + record }
