-- Marks an entry as stale, and ends its load; the entry keeps its TTL.
-- KEYS[1]  the entry
-- KEYS[2]  the token of its load
-- ARGV[1]  the entry as it was read, '' when there was none
-- ARGV[2]  the same entry as stale; '' to remove one that cannot be decoded
-- RETURNS  1; 2 when there was none; 0 when the entry has changed, and only its load was ended
redis.call('UNLINK', KEYS[2])
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
  return 2
end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
