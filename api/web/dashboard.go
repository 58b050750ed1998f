package web

// dashboard are the modules of the dashboard, which are in the folder of this name.
func dashboard() []string {
	return []string{
		"api", "availability", "chart", "counts", "curl", "devices", "dom", "feed", "live", "main", "marks",
		"namespaces", "people", "place", "row", "session", "times", "view",
	}
}
