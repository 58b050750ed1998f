package memstore

import (
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// deviceTable holds the devices of the users of one namespace. Like [names] it contains next to no pointers. A
// namespace that has not had a device has no table.
type deviceTable struct {
	byUser btree.Map[packed.Ref, packed.Ref] // by the reference to the user's ID, the one to their text
	texts  packed.Names                      // the texts of users, and meta
}

// userDevices are the devices of a user in a table.
type userDevices struct {
	lastseen.Devices
	text packed.Ref   // in texts: the devices, and the references to meta; NoName for a user without devices
	meta []packed.Ref // in texts: the meta of each record; NoName for none
}

// get returns the devices of a user, whose ID has a reference.
func (t *deviceTable) get(user packed.Ref) userDevices {
	text, known := t.byUser.Get(user)
	if !known {
		return userDevices{}
	}
	c := packed.Reader{Rest: t.texts.At(text)}
	u := userDevices{Devices: c.Devices(), text: text}
	for range u.Records {
		u.meta = append(u.meta, packed.Ref(c.Uvarint()))
	}
	return u
}

// set stores the devices of a user, and the meta of some of them, by the ID of the record. The meta of others stays.
// It returns how many bytes more they take in a data file.
func (t *deviceTable) set(user packed.Ref, d lastseen.Devices, meta map[string]string) (bytes int64) {
	old, now := t.get(user), userDevices{Devices: d}
	bytes = -t.size(old)
	for _, r := range d.Records {
		kept := packed.NoName
		if i := indexOf(old.Records, r.ID); i >= 0 {
			kept, old.meta[i] = old.meta[i], packed.NoName
		}
		if text, given := meta[r.ID]; given {
			t.remove(kept)
			kept = t.add(text)
		}
		now.meta = append(now.meta, kept)
	}
	for _, unused := range old.meta { // of records that are deleted
		t.remove(unused)
	}
	t.remove(old.text)
	t.put(user, &now)
	return bytes + t.size(now)
}

// put writes the text of a user's devices.
func (t *deviceTable) put(user packed.Ref, u *userDevices) {
	if isZero(u.Devices) {
		t.byUser.Delete(user)
		return
	}
	b := packed.AppendDevices(nil, u.Devices)
	for _, meta := range u.meta {
		b = binary.AppendUvarint(b, uint64(meta))
	}
	u.text = t.texts.Add(string(b))
	t.byUser.Set(user, u.text)
}

func isZero(d lastseen.Devices) bool { return d.Left == 0 && len(d.Records) == 0 }

// indexOf returns the index of the record of an ID, or -1.
func indexOf(records []lastseen.DeviceRecord, id string) int {
	return slices.IndexFunc(records, func(r lastseen.DeviceRecord) bool { return r.ID == id })
}

func (t *deviceTable) add(text string) packed.Ref {
	if text == "" {
		return packed.NoName
	}
	return t.texts.Add(text)
}

// remove frees a text.
func (t *deviceTable) remove(text packed.Ref) {
	if text != packed.NoName {
		t.texts.Remove(text)
	}
}

// size returns about how many bytes the devices of a user take in a data file, besides the user.
func (t *deviceTable) size(u userDevices) int64 {
	var buf [binary.MaxVarintLen64]byte
	size := len(t.texts.At(u.text))
	for i, meta := range u.meta {
		size -= len(binary.AppendUvarint(buf[:0], uint64(meta))) // not in the file
		if meta != packed.NoName {
			size += len(u.Records[i].ID) + len(t.texts.At(meta)) + metaBytes
		}
	}
	return int64(size)
}

// metaBytes is about how many bytes a change of meta takes in a data file, besides its texts.
const metaBytes = 3

// read returns the devices of a user, and the meta of each record.
func (t *deviceTable) read(user packed.Ref) (lastseen.Devices, []string) {
	u := t.get(user)
	meta := make([]string, len(u.meta))
	for i, at := range u.meta {
		meta[i] = string(t.texts.At(at))
	}
	return u.Devices, meta
}

// readWithMeta returns the devices of a user, and the meta by the ID of the record; nil for none.
func (t *deviceTable) readWithMeta(user packed.Ref) (d lastseen.Devices, meta map[string]string) {
	d, texts := t.read(user)
	for i, text := range texts {
		if text == "" {
			continue
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[d.Records[i].ID] = text
	}
	return d, meta
}

// freeze returns the table as it is now, to be read without a lock until the next freeze.
func (t *deviceTable) freeze() *deviceTable {
	if t == nil {
		return nil
	}
	return &deviceTable{byUser: *t.byUser.Copy(), texts: *t.texts.Freeze()}
}

// devicesOf returns the devices of a user; none if the user is not known.
func (u *users) devicesOf(user string) (lastseen.Devices, []string) {
	e, known := u.get(user)
	if !known || u.devices == nil {
		return lastseen.Devices{}, nil
	}
	return u.devices.read(e.name)
}

// setDevices stores the devices of a user who is known; see deviceTable.set.
func (u *users) setDevices(user string, d lastseen.Devices, meta map[string]string) {
	e, known := u.get(user)
	if !known {
		return
	}
	if u.devices == nil {
		if isZero(d) {
			return
		}
		u.devices = &deviceTable{texts: packed.NewNames()}
	}
	u.bytes += u.devices.set(e.name, d, meta)
	u.noteIdle(user, d)
}
