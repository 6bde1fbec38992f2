-- Takes over the loads of several pages, so that what others are loading is not stored.
-- KEYS     of each page: the entry, its load
-- ARGV[1]  the token of whoever loads them now
-- ARGV[2]  the lease in milliseconds
-- RETURNS  how many pages
for page = 1, #KEYS / 2 do redis.call('SET', KEYS[page * 2], ARGV[1], 'PX', ARGV[2]) end
return #KEYS / 2
