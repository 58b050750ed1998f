module github.com/lastseen/lastseen/tools/man

go 1.26

require github.com/cpuguy83/go-md2man/v2 v2.0.7

require github.com/russross/blackfriday/v2 v2.1.0 // indirect
