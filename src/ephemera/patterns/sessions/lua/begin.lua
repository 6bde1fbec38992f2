-- Marks that a sign-in is under way, so that a revocation before its end is noticed; sign-ins share the mark.
-- KEYS[1]  the user's index
-- ARGV[1]  a fresh mark, which no session id looks like
-- ARGV[2]  how long a sign-in may take, in milliseconds
-- RETURNS  the mark that a revocation removes
local index = KEYS[1]
local mark = redis.call('ZRANGE', index, 'inf', 'inf', 'BYSCORE')[1]
if not mark then
  mark = ARGV[1]
  redis.call('ZADD', index, 'inf', mark)
end
if redis.call('PTTL', index) < tonumber(ARGV[2]) then redis.call('PEXPIRE', index, ARGV[2]) end
return mark
