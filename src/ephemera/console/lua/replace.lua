-- Replaces a string if it is still the one that was read before; its TTL stays.
-- KEYS[1]  the string
-- ARGV[1]  what was read
-- ARGV[2]  what replaces it
-- RETURNS  1 when it was replaced; 0 when it has changed or is gone
if redis.call('TYPE', KEYS[1]).ok ~= 'string' or redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
