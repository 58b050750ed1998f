package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestManPage has all commands of the guide, and the line that apropos reads.
func TestManPage(t *testing.T) {
	guide, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := manPage(string(guide))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `\-`, "-")
	if !strings.Contains(text, "\n.SH NAME\nlastseen - a presence service: ") {
		t.Errorf("no name: %.300s", text)
	}
	commands := regexp.MustCompile("(?m)^### `([^`]+)`$").FindAllStringSubmatch(string(guide), -1)
	if len(commands) < 20 {
		t.Errorf("the guide has %d commands", len(commands))
	}
	for _, command := range commands {
		if !strings.Contains(text, "\n.SS \\fB"+command[1]+"\\fR\n") {
			t.Errorf("no section about %s", command[1])
		}
	}
	if strings.Contains(text, ".md") || strings.Contains(text, "<!--") {
		t.Error("a link to a guide, or a comment, is left")
	}
	if _, err := manPage("# Something else\n"); err == nil {
		t.Error("a guide without the title is taken")
	}
}
