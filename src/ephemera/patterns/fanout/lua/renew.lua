-- Adds connections of one server process, or renews the deadlines of those that exist; each has its own.
-- KEYS[1]  a user's connections: a sorted set of '<server>:<connection>' by deadline (milliseconds since 1970)
-- ARGV[1]  the milliseconds from now to the new deadline
-- ARGV[2...] the members
-- RETURNS  how many of them were added
local time = redis.call('TIME')
local deadline = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local added = 0
for at = 2, #ARGV do
  added = added + redis.call('ZADD', KEYS[1], deadline, ARGV[at])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return added
