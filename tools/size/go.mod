module github.com/lastseen/lastseen/tools/size

go 1.26
