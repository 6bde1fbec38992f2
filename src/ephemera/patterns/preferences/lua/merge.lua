-- Sets some members of a JSON value and restarts its lifetime; creates the value if it is missing. Follows `json.lua`.
-- KEYS[1]  the value
-- ARGV[1]  its lifetime in milliseconds
-- ARGV[2]  and on: the change, as `json.lua` takes it: 'value', the envelope's head, then name, value, ...
-- RETURNS  the whole text as it is now
if not change(KEYS[1], 2) then redis.call('SET', KEYS[1], ARGV[3] .. spliced('{}', 4) .. ']') end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('GET', KEYS[1])
