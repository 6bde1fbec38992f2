-- Claims the load of an entry that is missing or to be replaced, or says what prevents it.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load, or '-' while loads back off after a failure
-- ARGV[1]  the caller's token
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  '1' to load although there is an entry; '2' also during a backoff, when the entry is unusable
-- RETURNS  {token of the load, '' when there is none; milliseconds left of its lease; the entry or nil; server time, ms}
local entry = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if entry and ARGV[3] == '' then return {'', 0, entry, now} end
local token, left = redis.call('GET', KEYS[2]), redis.call('PTTL', KEYS[2])
-- One without a TTL is another program's, and would prevent every load.
if token and left > 0 and (token ~= '-' or (entry and ARGV[3] ~= '2')) then return {token, left, entry, now} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], tonumber(ARGV[2]), entry, now}
