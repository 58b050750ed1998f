package config

import (
	"slices"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
)

// checkVisibility reports namespaces whose users are to be visible to their contacts, but which cannot have contacts,
// or whose users others would see nevertheless.
func (c *Config) checkVisibility(e *Error) {
	for _, s := range c.all() {
		if !s.toContacts() {
			continue
		}
		if s.OnRedis() {
			s.checkSideKeys(e, "visibility",
				"users in a set that other programs can write have no contacts: set visibility to everyone for it",
				"contacts require a prefix without braces")
		}
		if (s.server == nil || s.isSet("visibility")) && !c.secured() {
			e.Addf("%s: without %s and JWTs, anyone sees everyone; configure JWTs, or set visibility to everyone",
				s.describe("visibility"), keysSection)
		}
	}
	c.checkAnonymousVisibility(e)
}

// toContacts reports whether users are visible to their contacts only.
func (s *Values) toContacts() bool {
	return s.valid("visibility") && s.Visibility == api.VisibleToContacts
}

// checkAnonymousVisibility reports namespaces that anonymous callers can read, and in which they would see nobody. Most
// callers can be anonymous, so that this would be a mistake.
func (c *Config) checkAnonymousVisibility(e *Error) {
	if !c.valid(anonymousRead, "unknown-namespaces") {
		return
	}
	const problem = "%s and %s: anonymous callers see no users where they are visible to contacts; " +
		"let them read only namespaces with visibility everyone"
	// A pattern with * is the name of no namespace.
	unknown := func(p auth.Pattern) bool { return !c.Configured(string(p)) }
	inherited := c.toContacts() && c.UnknownNamespaces != RefuseUnknown && slices.ContainsFunc(c.AnonymousRead, unknown)
	if inherited {
		e.Addf(problem, c.describe(anonymousRead), c.describe("visibility"))
	}
	for _, name := range c.Names() {
		ns := c.namespaces[name]
		if inherited && !ns.isSet("visibility") {
			continue
		}
		matches := func(p auth.Pattern) bool { return p.Match(name) }
		if ns.toContacts() && slices.ContainsFunc(c.AnonymousRead, matches) {
			e.Addf(problem, c.describe(anonymousRead), ns.describe("visibility"))
		}
	}
}
