-- Takes over the loads of several entries, so that no other load of them is stored.
-- KEYS     for each entry: the entry, the token of its load
-- ARGV[1]  the caller's token
-- ARGV[2]  the lease in milliseconds
-- RETURNS  the number of entries
for entry = 1, #KEYS / 2 do redis.call('SET', KEYS[entry * 2], ARGV[1], 'PX', ARGV[2]) end
return #KEYS / 2
