package api

// Values of headers that are the same in many responses. Sharing them saves an allocation each. They must not be
// modified.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{mediaJSON}
	typeProblem = []string{"application/problem+json"}
	minimalDone = []string{"return=minimal"}
)
