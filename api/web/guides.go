package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"io/fs"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/lastseen/lastseen/docs"
)

const (
	// guidesRoot is the path of the index of the guides. The guides and their files are below it.
	guidesRoot = "/guides/"
	// repository is where the links of guides lead to that name a file that is not served.
	repository = "https://github.com/lastseen/lastseen/blob/main/"
)

// section is a heading of a guide, and the text below it without code blocks.
type section struct {
	Level             int
	ID, Heading, Text string
}

// addGuides adds the guides, the files that they link to, and their search.
func (p Pages) addGuides() {
	source := docs.Files()
	_ = fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, _ error) error { // of embedded files, never fails
		switch {
		case entry.IsDir():
		case path.Ext(name) == ".md":
			p.add(guidePath(name), html, func() ([]byte, error) { return p.guide(source, name) })
		default:
			types := map[string]string{".svg": svg, ".png": "image/png", ".json": "application/schema+json"}
			p.add(guidePath(name), cmp.Or(types[path.Ext(name)], plainText), file(source, name))
		}
		return nil
	})
	p.add(guidesRoot+"guides.css", css, file(files, "guides.css"))
	p.add(guidesRoot+"guides.js", javaScript, file(files, "guides.js"))
	p.add(guidesRoot+"search.json", jsonType, func() ([]byte, error) { return p.searchIndex(source) })
}

// guidePath returns the path at which a file of docs is served. The map of the guides is their index.
func guidePath(name string) string {
	if name == "README.md" {
		return guidesRoot
	}
	return guidesRoot + strings.TrimSuffix(name, ".md")
}

// HasGuide reports whether there is a page or a file of this name below /guides/.
func (p Pages) HasGuide(name string) bool { return p[guidesRoot+name] != nil }

// GuideOf returns the URL of the guide in a Markdown file, relative to /guides/, or "" if there is no such file.
func GuideOf(name string) string {
	if _, err := fs.Stat(docs.Files(), name); err != nil || path.Ext(name) != ".md" {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(guidePath(name), guidesRoot), "./")
}

// guide returns the page of a guide. Raw HTML is left out, as are links with schemes that run scripts.
func (p Pages) guide(source fs.FS, name string) ([]byte, error) {
	page, err := template.ParseFS(files, "guide.html")
	if err != nil {
		return nil, err
	}
	content, err := fs.ReadFile(source, name)
	if err != nil {
		return nil, err
	}
	document, sections := p.parse(content)
	var b bytes.Buffer
	if err = markdown().Renderer().Render(&b, content, document); err != nil {
		return nil, err
	}
	// A table scrolls by itself, without the page. Only tables have this text: in all other places < is escaped.
	body := strings.ReplaceAll(b.String(), "<table>", `<div class="table"><table>`)
	body = strings.ReplaceAll(body, "</table>", "</table></div>")
	b.Reset()
	err = page.Execute(&b, map[string]any{
		"Index": guidePath(name) == guidesRoot, "Sections": sections, "Body": template.HTML(body),
	})
	return b.Bytes(), err
}

// markdown returns the syntax of the guides. The policy forbids the style attributes that align cells by default.
func markdown() goldmark.Markdown {
	table := extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))
	return goldmark.New(goldmark.WithExtensions(table))
}

// parse returns a guide whose headings have anchors and whose links lead to what is served, and its sections.
func (p Pages) parse(content []byte) (ast.Node, []section) {
	document, anchors := markdown().Parser().Parse(text.NewReader(content)), docs.Anchors{}
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // fails only if this does
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(p.guideLink(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	sections := []section{}
	for block := document.FirstChild(); block != nil; block = block.NextSibling() {
		words := plain(block, content)
		if heading, ok := block.(*ast.Heading); ok {
			id := anchors.Next(words)
			heading.SetAttributeString("id", []byte(id))
			sections = append(sections, section{Level: heading.Level, ID: id, Heading: words})
		} else if last := len(sections) - 1; last >= 0 {
			sections[last].Text = strings.TrimSpace(sections[last].Text + " " + words)
		}
	}
	return document, sections
}

// guideLink returns the destination of a link in a guide as the page of the guide has it.
func (p Pages) guideLink(link string) string {
	name, anchor, hasAnchor := strings.Cut(link, "#")
	if name == "" || strings.Contains(name, ":") {
		return link
	}
	inRepository := path.Join("docs", name)
	inDocs, ok := strings.CutPrefix(inRepository, "docs/")
	switch at := guidePath(inDocs); {
	case ok && p[at] != nil:
		name = cmp.Or(strings.TrimPrefix(at, guidesRoot), "./")
	case ok && p["/"+inDocs] != nil: // such as asyncapi.yaml
		name = "../" + inDocs
	case p["/"+inRepository] == nil: // openapi.yaml is served
		name = repository + inRepository
	}
	if hasAnchor {
		name += "#" + anchor
	}
	return name
}

// plain returns the words of a block without code blocks, in one line.
func plain(block ast.Node, content []byte) string {
	var b strings.Builder
	_ = ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // fails only if this does
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(content))
			} else if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.AutoLink:
			if entering {
				b.Write(n.Label(content))
			}
		default:
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// searchIndex returns what the search of the guides reads, as JSON.
func (p Pages) searchIndex(source fs.FS) ([]byte, error) {
	type guide struct {
		Page     string      `json:"page"`
		Title    string      `json:"title"`
		Sections [][4]string `json:"sections"` // anchor, heading, beginning of the text, other words of it
	}
	names, err := fs.Glob(source, "*.md")
	if err != nil {
		return nil, err
	}
	all := []guide{}
	for _, name := range names {
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return nil, err
		}
		_, sections := p.parse(content)
		at := guidePath(name)
		if at == guidesRoot { // the map has only links
			continue
		}
		g := guide{Page: strings.TrimPrefix(at, guidesRoot), Title: sections[0].Heading}
		for _, s := range sections {
			start, words := abridge(s.Text)
			g.Sections = append(g.Sections, [4]string{s.ID, s.Heading, start, words})
		}
		all = append(all, g)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // it is not part of a page
	err = encoder.Encode(all)
	return b.Bytes(), err
}

// abridge returns the beginning of a text, to show it, and the other words of the text, once each, to find them. The
// search is a third smaller that way. Words of one or two bytes are left out.
func abridge(text string) (start, words string) {
	const shown = 20 // words
	all := strings.Fields(text)
	n := min(shown, len(all))
	seen, others := map[string]bool{}, []string{}
	for i, word := range all {
		word = strings.Trim(word, `.,;:!?()"…“”`)
		if key := strings.ToLower(word); !seen[key] && len(word) > 2 {
			seen[key] = true
			if i >= n {
				others = append(others, word)
			}
		}
	}
	return strings.Join(all[:n], " "), strings.Join(others, " ")
}
