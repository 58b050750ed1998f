// Package privacy tests what others must not learn: that a user is invisible, and of users who did not choose them as
// contacts. The tests compare two sites, in all ways in which clients learn of users.
package privacy
