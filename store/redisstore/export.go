package redisstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file reads all that is kept, to copy it to another store. docs/decisions/redis-keys.md has the keys.

// Export calls a function with all that is kept of each user, in no order, and with "" for each namespace, until it
// fails. It may name a user twice. What was written meanwhile, or by other programs in another form, may be missing; so
// are the hidden times in namespaces that do not exist any longer.
func Export(ctx context.Context, s *Store, keep func(namespace, user string, k store.Kept) error) error {
	names, err := Names(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range names {
		c, err := openCopier(ctx, s, name)
		if err != nil {
			return err
		}
		if err := keep(name, "", store.Kept{}); err != nil {
			return err
		}
		if err := c.export(ctx, func(user string, k store.Kept) error { return keep(name, user, k) }); err != nil {
			return err
		}
	}
	return nil
}

// copier copies one namespace.
type copier struct {
	*Store
	namespace
	has    map[string]sides    // by the key of the shard
	owners map[string]struct{} // of contacts, in all shards; nil if anyone can be one
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

// keptPage are some users and what is kept of them.
type keptPage struct {
	users []string
	kept  []store.Kept
}

func (c *copier) export(ctx context.Context, keep func(user string, k store.Kept) error) error {
	began, err := c.processes(ctx)
	if err == nil {
		err = c.findOwners(ctx)
	}
	if err != nil {
		return err
	}
	group, scanning := errgroup.WithContext(ctx)
	pages := make(chan keptPage, 4) // Redis works beside this program
	group.Go(func() error {
		defer close(pages)
		return c.scan(scanning, pages)
	})
	group.Go(func() error {
		for page := range pages {
			for i, k := range page.kept {
				if !k.State.Known() || lastseen.CheckUser(page.users[i]) != nil { // other programs can write any name
					continue
				}
				if err := keep(page.users[i], k); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	for _, key := range c.all() {
		if err := c.exportUnseen(ctx, key, keep); err != nil {
			return err
		}
	}
	for owners := range slices.Chunk(slices.Collect(maps.Keys(c.owners)), maxChunk) {
		if err := c.keepUnseen(ctx, owners, keep); err != nil {
			return err
		}
	}
	if ended, err := c.processes(ctx); err != nil || !slices.Equal(ended, began) {
		return cmp.Or(err, errors.New("redis was restarted or replaced meanwhile: run it again"))
	}
	return nil
}

// processes returns what is different in each process of Redis, of those that have the shards. In another one, the
// cursor of a scan means nothing.
func (c *copier) processes(ctx context.Context) (all []string, err error) {
	for _, key := range c.all() {
		cmd, err := c.client.Run(ctx, scripts.Scan, key, "", "0", 1)
		if err != nil {
			return nil, err
		}
		reply, err := cmd.StringSlice()
		if err != nil || len(reply) == 0 {
			return nil, cmp.Or(err, errors.New("unexpected script reply"))
		}
		all = append(all, reply[0])
	}
	return all, nil
}

// scan sends all users who have a state.
func (c *copier) scan(ctx context.Context, pages chan<- keptPage) error {
	for _, key := range c.all() {
		for at, more := uint64(0), true; more; more = at != 0 {
			found, next, err := c.client.ZScan(ctx, key, at, "", 4*maxChunk).Result()
			if err != nil {
				return redisclient.Translate(err)
			}
			at = next
			page := keptPage{make([]string, len(found)/2), make([]store.Kept, len(found)/2)}
			for i := range page.users {
				score, _ := strconv.ParseFloat(found[2*i+1], 64) // it is 0 for what is none
				page.users[i], page.kept[i].State = found[2*i], c.state(score)
			}
			if err := c.readRest(ctx, page.users, page.kept); err != nil {
				return err
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// exportUnseen calls keep with the users of a shard who have details or a hidden time, but no state.
func (c *copier) exportUnseen(ctx context.Context, key string, keep func(user string, k store.Kept) error) error {
	details := func(at uint64) *redis.ScanCmd { return c.client.HScan(ctx, c.sideKey(key, 'd'), at, "", maxChunk) }
	hidden := func(at uint64) *redis.ScanCmd { return c.client.ZScan(ctx, c.sideKey(key, 'h'), at, "", maxChunk) }
	for letter, scan := range map[string]func(cursor uint64) *redis.ScanCmd{"d": details, "h": hidden} {
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
			if err := c.keepUnseen(ctx, users, keep); err != nil {
				return err
			}
		}
	}
	return nil
}

// findOwners notes the owners of contacts, so that contacts are read of them alone.
func (c *copier) findOwners(ctx context.Context) error {
	c.owners = map[string]struct{}{}
	for _, key := range c.all() {
		for after := "-"; c.has[key].has("c") && after != ""; {
			members, err := c.client.ZRangeArgs(ctx, redis.ZRangeArgs{
				Key: c.sideKey(key, 'c'), ByLex: true, Start: after, Stop: "+", Count: 4 * maxChunk,
			}).Result()
			if err != nil {
				return redisclient.Translate(err)
			}
			after = ""
			for _, member := range members {
				owner, _, _ := strings.Cut(member, "\x00")
				c.owners[owner] = struct{}{}
				_, past := contactsAfter(owner, "")
				after = "[" + past[1:]
			}
		}
	}
	return nil
}

func (c *copier) keepUnseen(ctx context.Context, users []string, keep func(user string, k store.Kept) error) error {
	all, err := c.read(ctx, users)
	for i, k := range all {
		if err == nil && !k.State.Known() {
			err = keep(users[i], k)
		}
	}
	return err
}

// read returns what is kept of users.
func (c *copier) read(ctx context.Context, users []string) ([]store.Kept, error) {
	kept := make([]store.Kept, len(users))
	pipe := c.client.Pipeline()
	cmds := map[*chunk]*redis.FloatSliceCmd{}
	for _, chunk := range c.split(len(users), maxChunk, func(i int) string { return users[i] }) {
		args := chunk.command("zmscore", chunk.key, func(at int) any { return &users[at] })
		cmds[chunk] = redis.NewFloatSliceCmd(ctx, args...) // 0 for none
		_ = pipe.Process(ctx, cmds[chunk])                 // only queues it
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, redisclient.Translate(err)
	}
	for chunk, cmd := range cmds {
		for i, score := range cmd.Val() {
			kept[chunk.index[i]].State = c.state(score)
		}
	}
	return kept, c.readRest(ctx, users, kept)
}

// readRest reads what is kept of users besides their states.
func (c *copier) readRest(ctx context.Context, users []string, kept []store.Kept) error {
	pipe := c.client.Pipeline()
	var reads []func()
	for _, chunk := range c.split(len(users), maxChunk, func(i int) string { return users[i] }) {
		reads = append(reads, c.queryChunk(ctx, pipe, chunk, users, kept)...)
	}
	for i := range users {
		if read := c.readContacts(ctx, pipe, users[i], &kept[i]); read != nil {
			reads = append(reads, read)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return redisclient.Translate(err)
	}
	for _, read := range reads {
		read()
	}
	return c.readMetas(ctx, users, kept)
}

// queryChunk adds the commands for devices and for what users say to a pipeline, and returns what reads the replies.
func (c *copier) queryChunk(
	ctx context.Context, pipe redis.Pipeliner, of *chunk, users []string, kept []store.Kept,
) (reads []func()) {
	command := func(name string, letter rune) []any {
		return of.command(name, c.sideKey(of.key, letter), func(at int) any { return &users[at] })
	}
	texts := func(letter rune, set func(k *store.Kept, text string)) {
		if !c.has[of.key].has(string(letter)) {
			return
		}
		cmd := redis.NewSliceCmd(ctx, command("hmget", letter)...)
		_ = pipe.Process(ctx, cmd) // only queues it
		reads = append(reads, func() {
			for i, text := range cmd.Val() {
				if text, ok := text.(string); ok {
					set(&kept[of.index[i]], text)
				}
			}
		})
	}
	texts('r', func(k *store.Kept, text string) {
		if d, ok := parseDevices(text); ok && k.State.Known() {
			k.Devices = d
		}
	})
	texts('d', func(k *store.Kept, text string) {
		d, _ := parseDetails(text)
		k.Availability = d.Availability
	})
	if c.has[of.key].has("h") {
		ends := redis.NewFloatSliceCmd(ctx, command("zmscore", 'h')...) // 0 for none
		_ = pipe.Process(ctx, ends)
		reads = append(reads, func() {
			for i, end := range ends.Val() {
				kept[of.index[i]].Hidden = hiddenOf(end)
			}
		})
	}
	texts('p', func(k *store.Kept, text string) { k.Hidden = withPrivate(k.Hidden, text) })
	return reads
}

// readContacts adds the commands for the contacts of an owner to a pipeline, and returns what reads the replies; nil if
// there are no contacts.
func (c *copier) readContacts(ctx context.Context, pipe redis.Pipeliner, owner string, k *store.Kept) (read func()) {
	key := c.of(owner)
	if _, is := c.owners[owner]; c.owners != nil && !is || !c.has[key].has("c") {
		return nil
	}
	low, high := contactsAfter(owner, "")
	members := pipe.ZRangeArgs(ctx, redis.ZRangeArgs{Key: c.sideKey(key, 'c'), ByLex: true, Start: low, Stop: high})
	used := redis.NewFloatSliceCmd(ctx, "zmscore", c.sideKey(key, 'u'), owner) // 0 for none
	_ = pipe.Process(ctx, used)
	return func() {
		for _, member := range members.Val() {
			k.Contacts = append(k.Contacts, member[len(memberOf(owner, "")):])
		}
		if len(k.Contacts) > 0 {
			k.Used = lastseen.Instant(used.Val()[0])
		}
	}
}

// hiddenOf returns the hidden time with a score: 0 for none, +inf for one without an end.
func hiddenOf(end float64) (h store.KeptHidden) {
	h.End = lastseen.Instant(min(max(end, 0), float64(lastseen.MaxInstant)))
	h.Ended = h.End != 0 // unless the private availability says otherwise
	return h
}

// withPrivate returns a hidden time with what the user says, given the field of the private key.
func withPrivate(h store.KeptHidden, text string) store.KeptHidden {
	if h.End == 0 {
		return h
	}
	a, ok := parsePrivate(text)
	h.Ended = ok && a.Availability == ""
	if ok && !h.Ended {
		h.Until, h.Note = a.Until, a.Note
	}
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
