-- Sends a message to every server process that a user is connected to, and forgets connections past their deadline.
-- KEYS[1]  the user's connections: a sorted set of '<server>:<connection>' by deadline (milliseconds since 1970)
-- ARGV[1]  how the channels of the processes begin; the server's name follows
-- ARGV[2]  the message
-- RETURNS  how many connections it was sent to
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
local told = {}
for _, member in ipairs(members) do
  local server = member:match('^[^:]+')
  if not told[server] then
    told[server] = true
    redis.call('PUBLISH', ARGV[1] .. server, ARGV[2])
  end
end
return #members
