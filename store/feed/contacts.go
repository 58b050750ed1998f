package feed

// DependOn has the watcher learn from now on when the contacts of some users change: Next and Take return then, perhaps
// with a batch that says nothing else, until ContactsChanged was called. After a reset, all count as changed.
func (w *Watcher) DependOn(owners ...string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, owner := range owners {
		if w.f.owners[owner] == nil {
			w.f.owners[owner] = map[*Watcher]struct{}{}
		}
		w.f.owners[owner][w] = struct{}{}
		w.owners[owner] = false
	}
}

// Ignore undoes DependOn.
func (w *Watcher) Ignore(owners ...string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.ignore(owners)
}

func (w *Watcher) ignore(owners []string) {
	for _, owner := range owners {
		if delete(w.f.owners[owner], w); len(w.f.owners[owner]) == 0 {
			delete(w.f.owners, owner)
		}
		delete(w.owners, owner)
	}
}

// ContactsChanged returns whose contacts changed since the last call. What the batches before have is from before that,
// or from after it.
func (w *Watcher) ContactsChanged() (owners []string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if !w.notices {
		return nil
	}
	for owner, changed := range w.owners {
		if changed {
			w.owners[owner] = false
			owners = append(owners, owner)
		}
	}
	w.notices = false
	return owners
}

// contactsChanged tells the watchers that depend on the contacts of a user. The caller holds the follower's lock.
func (f *follower) contactsChanged(owner string) {
	for w := range f.owners[owner] {
		w.owners[owner], w.notices = true, true
		wake(w.wake)
	}
}

// missedContacts has all contacts count as changed if the follower began again since they were known. The caller holds
// the follower's lock.
func (w *Watcher) missedContacts() {
	if w.restarts == w.f.restarts {
		return
	}
	w.restarts = w.f.restarts
	for owner := range w.owners {
		w.owners[owner], w.notices = true, true
	}
}

// restarted returns how often the follower began.
func (f *follower) restarted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.restarts
}

// noticeContacts notes that the contacts of a user changed, according to what the watcher read itself.
func (w *Watcher) noticeContacts(owner string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if _, depends := w.owners[owner]; depends {
		w.owners[owner], w.notices = true, true
	}
}
