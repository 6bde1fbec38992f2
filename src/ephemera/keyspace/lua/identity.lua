-- Refuses a database that is not marked with the expected name; an empty one has lost its mark and is marked again.
-- KEYS[1]  the mark
-- ARGV[1]  the name that it must hold
-- RETURNS  the name; the error WRONGSERVER when the database holds another name, or keys and no name
local name = redis.call('GET', KEYS[1])
if name == ARGV[1] then return name end
if name then
  return redis.error_reply("WRONGSERVER it is marked as '" .. name .. "', not as '" .. ARGV[1] .. "'")
end
if redis.call('DBSIZE') > 0 then
  return redis.error_reply("WRONGSERVER it holds keys and has no mark, and '" .. ARGV[1] .. "' was expected")
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
