package main

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/redisstore"
)

// definition is what the tags say about one setting; see settings.go.
type definition struct {
	name, group, placeholder, help string
	standard                       string // the value unless set; "" if there is none
	flag, file, namespace          bool   // where it can be set; flag stands for the environment, too
	reload, secret                 bool
	text                           bool // any text, so that a file has to quote what YAML takes for something else
	list                           bool // several values, with commas between; in a file also a list
	low, high                      int  // bounds of a number; a low of 0 lets a duration be 0
	takes                          string
	index                          []int // of the field
}

// definitions returns all settings, in the order in which people read them.
func definitions() []definition {
	var all []definition
	for _, field := range reflect.VisibleFields(reflect.TypeFor[settings]()) {
		if !field.Anonymous {
			all = append(all, define(field))
		}
	}
	return all
}

func define(field reflect.StructField) definition {
	tag := field.Tag
	places := strings.Split(cmp.Or(tag.Get("in"), "flag,file"), ",")
	_, reload := tag.Lookup("reload")
	_, secret := tag.Lookup("secret")
	d := definition{
		name: kebab(field.Name), group: tag.Get("group"), placeholder: tag.Get("placeholder"), help: tag.Get("help"),
		standard: tag.Get("default"), takes: tag.Get("takes"), reload: reload, secret: secret, text: field.Type == reflect.TypeFor[string](), list: field.Type.Kind() == reflect.Slice, index: field.Index,
		flag: slices.Contains(places, "flag"), file: slices.Contains(places, "file"), namespace: slices.Contains(places, "namespace"),
	}
	d.low, _ = strconv.Atoi(cmp.Or(tag.Get("min"), "1"))
	d.high, _ = strconv.Atoi(tag.Get("max"))
	if d.takes == "" {
		d.takes = d.takesByType(field.Type)
	}
	return d
}

func (d definition) takesByType(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[duration]():
		if d.low == 0 {
			return "0, or a duration from 1ms to 10 years"
		}
		return "a duration from 1ms to 10 years"
	case reflect.TypeFor[int]():
		return fmt.Sprintf("a number from %d to %d", d.low, d.high)
	case reflect.TypeFor[redisstore.Unit]():
		return string(redisstore.Milliseconds + " or " + redisstore.Seconds)
	}
	if v, ok := reflect.New(t).Interface().(value); ok {
		return v.takes()
	}
	return "text"
}

// kebab returns the name of a setting: RedisPoolSize is redis-pool-size, and TLSCert is tls-cert.
func kebab(fieldName string) string {
	var b strings.Builder
	for i, r := range fieldName {
		begins := i > 0 && unicode.IsUpper(r) && (unicode.IsLower(rune(fieldName[i-1])) ||
			i+1 < len(fieldName) && unicode.IsLower(rune(fieldName[i+1])))
		if begins {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// envPrefix begins the name of every environment variable.
const envPrefix = "LASTSEEN_"

// env returns the name of the setting's environment variable.
func (d definition) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(d.name, "-", "_"))
}

// in returns a pointer to the setting's field.
func (d definition) in(s *settings) any {
	return reflect.ValueOf(s).Elem().FieldByIndex(d.index).Addr().Interface()
}

// set reads a value into the settings.
func (d definition) set(s *settings, text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	var err error
	switch field := d.in(s).(type) {
	case *string:
		*field = text
	case *int:
		*field, err = d.number(text)
	case *duration:
		*field, err = d.duration(text)
	case value:
		err = field.set(text)
	case *redisstore.Unit:
		*field = redisstore.Unit(text)
		if *field != redisstore.Milliseconds && *field != redisstore.Seconds {
			err = fmt.Errorf("%q is not a unit", text)
		}
	default:
		err = fmt.Errorf("the type %T is unknown", field)
	}
	return err
}

func (d definition) number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("%q is not a whole number", text)
	case err != nil || n < d.low || n > d.high:
		return 0, fmt.Errorf("%s is out of range", text)
	}
	return n, nil
}

func (d definition) duration(text string) (duration, error) {
	if text == "0" || text == "0s" {
		if d.low > 0 {
			return 0, errors.New("is 0")
		}
		return 0, nil
	}
	parsed, err := lastseen.ParseConfigDuration(text)
	return duration(parsed), err
}

// shown returns a value as people may see it.
func (d definition) shown(text string) string {
	switch {
	case d.secret && d.name == jwksURL:
		return keySetURL(text).redacted()
	case d.secret && isStoreURL(text):
		return redisstore.Redact(text)
	}
	return text
}
