package api

import (
	"fmt"
	"net/url"
)

// CheckOrigin tells what is wrong with an origin from which scripts are to be allowed: see Config.
func CheckOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() != origin {
		return fmt.Errorf("%q is no origin as browsers send it, like https://app.example.com or http://localhost:3000", origin)
	}
	return nil
}
