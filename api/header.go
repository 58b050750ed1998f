package api

// Values of headers that are the same in many answers. Sharing them saves an allocation each; nobody
// changes them.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	typeJSON    = []string{mediaJSON}
	typeProblem = []string{"application/problem+json"}
	minimalDone = []string{"return=minimal"}
)
