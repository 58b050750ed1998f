package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// detailsQuery reads the details of a chunk of users. It asks for those who are not known to have none, and for the
// versions, which show whether that still holds of the others.
type detailsQuery struct {
	namespace
	shard string                   // its key
	user  func(int) *string        // at a place of the batch; as a pointer, since a string would be copied
	found func(int, store.Details) // is called with the place of a user who has details

	known *groupVersions // the state that users were skipped for; nil if it was not known
	asked []int          // places
	rest  []int          // those skipped
	cmd   *redis.SliceCmd
}

// queryDetails adds the command to a pipeline that reads the details of a chunk of users.
func (s *Store) queryDetails(
	ctx context.Context, pipe redis.Pipeliner, n namespace, c *chunk, user func(int) *string,
	found func(int, store.Details),
) *detailsQuery {
	q := &detailsQuery{namespace: n, shard: c.key, user: user, found: found, asked: c.index}
	if q.known = s.undescribed.known(c.key); q.known != nil {
		q.rest, q.asked = s.undescribed.divide(q.known, c.index, user)
	}
	q.queue(ctx, pipe)
	return q
}

// queue adds a command to a pipeline that reads the versions, and the details of the users who are asked for.
func (q *detailsQuery) queue(ctx context.Context, pipe redis.Pipeliner) {
	args := append(make([]any, 0, 3+len(q.asked)), "hmget", q.details(q.shard), versionsField)
	for _, at := range q.asked {
		args = append(args, q.user(at))
	}
	q.cmd = redis.NewSliceCmd(ctx, args...)
	_ = pipe.Process(ctx, q.cmd) // only queues it
}

// readDetails reads the replies to queries. It asks once more, for users of groups that changed since they were known
// to have no details. The result has the error of each query.
func (s *Store) readDetails(ctx context.Context, queries []*detailsQuery) []error {
	errs := make([]error, len(queries))
	var again []int
	for i, q := range queries {
		if errs[i] = s.readQuery(q); errs[i] == nil && len(q.asked) > 0 {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return errs
	}
	pipe := s.reader(ctx).Pipeline()
	for _, i := range again {
		queries[i].queue(ctx, pipe)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for _, i := range again {
		errs[i] = s.readQuery(queries[i])
	}
	return errs
}

// readQuery reads the reply to a query, and remembers users without details. Afterwards, the query is for those who
// were skipped and whose group has changed.
func (s *Store) readQuery(q *detailsQuery) error {
	values, err := q.cmd.Result()
	if err != nil {
		return translate(err)
	}
	versions, _ := values[0].(string)
	now := s.undescribed.update(q.shard, versions)
	for i, value := range values[1:] {
		at := q.asked[i]
		user := *q.user(at)
		text, some := value.(string)
		if !some {
			if now != nil {
				s.undescribed.add(now, user)
			}
		} else if d, ok := parseDetails(text); ok {
			q.found(at, d)
		} else {
			s.warnOfDetails(q.namespace, user)
		}
	}
	q.asked = nil
	for _, at := range q.rest {
		if !q.known.same(now, groupOf(*q.user(at))) {
			q.asked = append(q.asked, at)
		}
	}
	q.rest = nil
	return nil
}
