package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lastseen/lastseen/api/auth"
)

// Definition is what the tags of one field of [Settings] say about a setting.
type Definition struct {
	Name, Group, Help, Takes string
	Default                  string // "" if there is none
	Flag, File, Namespace    bool   // where it can be set; a flag has an environment variable, too
	Reload                   bool   // whether it can change while the service runs

	list      bool     // several values, separated by commas; in a file also a list
	low, high int      // bounds of a number
	zeros     []string // texts that stand for 0
	format    format
	index     []int // of the field
}

// Definitions returns all settings in the order of their declaration. Callers must not modify the slice.
func Definitions() []Definition { return definitions() }

var (
	definitions = sync.OnceValue(func() []Definition { return define(reflect.TypeFor[Settings]()) })

	// keyFields are the fields of an API key in the file, without its name.
	keyFields = sync.OnceValue(func() []Definition { return define(reflect.TypeFor[auth.Key]())[1:] })
)

// define returns the definitions of the fields of a struct.
func define(t reflect.Type) (all []Definition) {
	for _, field := range reflect.VisibleFields(t) {
		if !field.Anonymous {
			all = append(all, defineField(field))
		}
	}
	return all
}

func defineField(field reflect.StructField) Definition {
	tag := field.Tag
	places := strings.Split(cmp.Or(tag.Get("in"), "flag,file"), ",")
	_, reload := tag.Lookup("reload")
	d := Definition{
		Name:  strings.ToLower(wordStart.ReplaceAllString(field.Name, "$1$3-$2$4")),
		Group: tag.Get("group"), Help: tag.Get("help"), Default: tag.Get("default"),
		Flag: slices.Contains(places, "flag"), File: slices.Contains(places, "file"),
		Namespace: slices.Contains(places, "namespace"), Reload: reload,
		list: field.Type.Kind() == reflect.Slice, index: field.Index,
	}
	d.low, _ = strconv.Atoi(cmp.Or(tag.Get("min"), "1"))
	d.high, _ = strconv.Atoi(tag.Get("max"))
	d.format = formats(d.low, d.high, tag)[cmp.Or(tag.Get("format"), field.Type.String())]
	takes := d.format.takes
	if zero, ok := tag.Lookup("zero"); ok {
		d.zeros = strings.Split(zero, ",")
		takes = d.zeros[0] + ", or " + takes
	}
	d.Takes = cmp.Or(tag.Get("takes"), takes)
	switch {
	case d.list && d.Group == "": // of an API key
		d.Takes = "a list of " + d.Takes
	case d.list:
		d.Takes = "comma-separated " + d.Takes
	}
	return d
}

// wordStart matches where a word starts within the name of a field: RedisPoolSize is redis-pool-size, and TLSCert is
// tls-cert.
var wordStart = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// Find returns the setting of a name.
func Find(name string) (d Definition, found bool) { return find(Definitions(), name) }

func find(all []Definition, name string) (d Definition, found bool) {
	i := slices.IndexFunc(all, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return all[i], true
}

// EnvPrefix starts the name of every environment variable.
const EnvPrefix = "LASTSEEN_"

// Env returns the name of the setting's environment variable.
func (d Definition) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(d.Name, "-", "_"))
}

// Note returns what the help of a flag adds to its text: the bounds, the default and the environment variable.
func (d Definition) Note() string {
	note := d.Env()
	if d.Default != "" {
		note = "default " + d.Default + ", " + note
	}
	if d.high > 0 {
		note = fmt.Sprintf("%d to %d, %s", d.low, d.high, note)
	}
	return "(" + note + ")"
}

// field returns the field of a struct, such as [Settings], to which a pointer is given.
func (d Definition) field(to any) reflect.Value {
	return reflect.ValueOf(to).Elem().FieldByIndex(d.index)
}

// parse reads a text into the field of a struct.
func (d Definition) parse(to any, text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	if slices.Contains(d.zeros, text) {
		d.field(to).SetZero()
		return nil
	}
	v, err := d.format.parse(text)
	if err == nil {
		d.field(to).Set(reflect.ValueOf(v).Convert(d.field(to).Type()))
	}
	return err
}
