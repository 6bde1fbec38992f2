-- Releases a reservation.
-- KEYS[1]  the reservations: a hash of id to 'measure amount ...', and of '=measure' to the sum of them
-- KEYS[2]  when they expire: a sorted set of ids
-- ARGV[1]  the id
-- RETURNS  1; 0 it had ended or expired
local reserved = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(reserved) ~= 'string' then return 0 end
for measure, amount in string.gmatch(reserved, '(%S+) (%d+)') do
  redis.pcall('HINCRBY', KEYS[1], '=' .. measure, -amount)  -- a sum that is no number is not ours
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.pcall('ZREM', KEYS[2], ARGV[1])
return 1
