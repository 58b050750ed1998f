package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// changesPath is the changes feed of the namespace feedNS.
const changesPath = "/v1/namespaces/" + feedNS + "/changes"

// changesPage is the response to a poll of a changes feed.
type changesPage struct {
	Users []struct {
		Status string `json:"status"`
	} `json:"users"`
	Cursor string `json:"cursor"`
	More   bool   `json:"more"`
	Reset  bool   `json:"reset"`
}

var errBegunAgain = errors.New("the feed began again")

// poll reads what changed after a cursor, or with "" the cursor of this moment.
func poll(ctx context.Context, server, cursor string) (page changesPage, err error) {
	path := changesPath + "?limit=1000"
	if cursor != "" {
		path += "&cursor=" + url.QueryEscape(cursor)
	}
	body, err := get(ctx, server+path)
	if err == nil {
		err = json.Unmarshal(body, &page)
	}
	if err == nil && page.Reset {
		err = errBegunAgain
	}
	return page, err
}

// placeOf returns a cursor of this moment.
func placeOf(ctx context.Context, server string) (string, error) {
	page, err := poll(ctx, server, "")
	return page.Cursor, err
}

// settleTime is after how long every server knows of a new feed. It begins again then, once.
const settleTime = 15 * time.Second

// beginFeed begins the feed, and waits until it will not begin again.
func beginFeed(ctx context.Context, server string) error {
	if _, err := placeOf(ctx, server); err != nil {
		return err
	}
	return pause(ctx, settleTime)
}

// awaitStatus reads what happens after a cursor until it says of n users that they have a status. A server that is not
// up to date refuses polls for a moment.
func awaitStatus(ctx context.Context, server, cursor, status string, n int) error {
	found := 0
	for deadline := time.Now().Add(time.Minute); found < n; {
		page, err := poll(ctx, server, cursor)
		if err == nil {
			cursor = page.Cursor
		}
		for _, user := range page.Users {
			if user.Status == status {
				found++
			}
		}
		if page.More || found >= n {
			continue
		}
		if time.Now().After(deadline) || errors.Is(err, errBegunAgain) {
			return errors.Join(fmt.Errorf("%d of %d users turned %s", found, n, status), err)
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
