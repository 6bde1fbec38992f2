-- Puts the same entry in its place as a stale one, and ends its load; the entry keeps its life.
-- KEYS[1]  the entry
-- KEYS[2]  its load
-- ARGV[1]  the entry as it was read, '' when there was none
-- ARGV[2]  the same as a stale one; '' to remove what nobody can read
-- RETURNS  1; 2 when there was none; 0 when the entry is another by now, and only its load was ended
redis.call('UNLINK', KEYS[2])
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
  return 2
end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return 1
