-- Adds to the counts of a day.
-- KEYS[1]  the day's counts, a hash
-- ARGV[1]  its TTL in milliseconds, from the first count of the day
-- ARGV[2...]  in pairs: a name, and what to add to it
-- RETURNS  1
for at = 2, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[at], ARGV[at + 1]) end
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
