// Command size measures Go source: the number of files, lines, functions and types, their lengths, and the share of
// comments. It reads a folder, including other modules in it, and prints a line for production code and one for tests.
// It also prints how many of the modules that go.mod requires directly are linked into the program.
//
//	go run -C tools/size . -root ../..
//
// A line counts as comment if nothing but a comment is on it, and as code if anything else is; blank lines count for
// a file's length only. The length of a function includes its signature and closing brace. Code under storetest,
// apitest and testenv is test code. Folders named testdata, and those that begin with a dot, are left out.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "folder to measure")
	flag.Parse()
	log.SetFlags(0)
	production, tests, err := measure(*root)
	if err != nil {
		log.Fatal(err)
	}
	const headings = "%-10s %6s %7s %18s %18s %6s %8s\n"
	fmt.Printf(headings, "", "files", "lines", "lines a file", "lines a function", "types", "comment")
	production.print("production")
	tests.print("tests")
	linked, err := linkedDirectly(*root)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("direct dependencies linked: %d\n", len(linked))
}

// linkedDirectly returns the modules that go.mod requires directly and cmd/lastseen contains.
func linkedDirectly(root string) ([]string, error) {
	const module = "{{with .Module}}{{if not (or .Main .Indirect)}}{{.Path}}{{end}}{{end}}"
	list := exec.Command("go", "list", "-deps", "-f", module, "./cmd/lastseen")
	list.Dir, list.Stderr = root, os.Stderr
	output, err := list.Output()
	modules := strings.Fields(string(output))
	slices.Sort(modules)
	return slices.Compact(modules), err
}

// total sums up source files.
type total struct {
	files, functions []int // their lengths in lines
	types            int
	code, comment    int // lines
}

func (t total) print(name string) {
	lines := 0
	for _, n := range t.files {
		lines += n
	}
	share := 100 * float64(t.comment) / float64(max(1, t.comment+t.code))
	fmt.Printf("%-10s %6d %7d %18s %18s %6d %7.1f%%\n",
		name, len(t.files), lines, spread(t.files), spread(t.functions), t.types, share)
}

// spread is the median, the 90th percentile and the maximum.
func spread(lengths []int) string {
	if len(lengths) == 0 {
		return "-"
	}
	slices.Sort(lengths)
	at := func(share float64) int { return lengths[int(share*float64(len(lengths)-1))] }
	return fmt.Sprintf("%d / %d / %d", at(0.5), at(0.9), at(1))
}

func measure(root string) (production, tests total, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		into := &production
		dir := filepath.ToSlash(filepath.Dir(path)) + "/"
		if strings.HasSuffix(path, "_test.go") || strings.Contains(dir, "/storetest/") ||
			strings.Contains(dir, "/apitest/") || strings.Contains(dir, "/internal/test") || strings.Contains(dir, "/e2e/") {
			into = &tests
		}
		return into.add(path)
	})
	return production, tests, err
}

// add counts one file.
func (t *total) add(path string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	t.files = append(t.files, strings.Count(string(source), "\n"))
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			t.functions = append(t.functions, set.Position(n.End()).Line-set.Position(n.Pos()).Line+1)
		case *ast.TypeSpec:
			t.types++
		}
		return true
	})
	t.countKinds(strings.Split(string(source), "\n"), set, parsed.Comments)
	return nil
}

// countKinds counts the lines with code, and those with nothing but a comment.
func (t *total) countKinds(lines []string, set *token.FileSet, comments []*ast.CommentGroup) {
	for _, group := range comments {
		for _, c := range group.List {
			first := set.Position(c.Pos())
			if strings.TrimSpace(lines[first.Line-1][:first.Column-1]) != "" {
				continue // it follows code
			}
			for i := range 1 + strings.Count(c.Text, "\n") {
				lines[first.Line-1+i] = ""
				t.comment++
			}
		}
	}
	for _, line := range lines {
		if strings.TrimSpace(line) != "" {
			t.code++
		}
	}
}
