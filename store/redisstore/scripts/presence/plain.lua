-- Ends a script if its users were recorded without side keys. What follows would take as long again only to be defined.
if named == '' then
  return write_plain(ARGV)
end

