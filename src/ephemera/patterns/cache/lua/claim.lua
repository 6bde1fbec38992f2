-- Takes the right to load an entry that is missing or to be replaced; or tells what stands in the way.
-- KEYS[1]  the entry
-- KEYS[2]  its load: the token of who loads it, or '-' while nobody shall after a failure
-- ARGV[1]  the token of whoever asks
-- ARGV[2]  the lease in milliseconds
-- ARGV[3]  '1' to load although there is an entry; '2' also after a failure, when the entry is over or unreadable
-- RETURNS  {token of who loads, '' when nobody does; milliseconds its lease has left; the entry or nil; server time, ms}
local entry = redis.call('GET', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if entry and ARGV[3] == '' then return {'', 0, entry, now} end
local loads = redis.call('GET', KEYS[2])
if loads and (loads ~= '-' or (entry and ARGV[3] ~= '2')) then return {loads, redis.call('PTTL', KEYS[2]), entry, now} end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {ARGV[1], tonumber(ARGV[2]), entry, now}
