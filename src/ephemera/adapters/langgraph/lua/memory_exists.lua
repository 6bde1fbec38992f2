-- Returns whether a namespace has an item. `memory.lua` is loaded before it.
-- KEYS[1]  the hash of the namespace
-- RETURNS  1 or 0
local cursor = '0'
repeat
  local page = redis.call('HSCAN', key, cursor)
  cursor = page[1]
  for at = 2, #page[2], 2 do
    if head(page[2][at]) then return 1 end
  end
until cursor == '0'
return 0
