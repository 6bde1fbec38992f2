-- Publishes a message to every server process that a user is connected to, and removes expired connections.
-- KEYS[1]  the user's connections: a sorted set of '<server>:<connection>' by deadline (milliseconds since 1970)
-- ARGV[1]  the prefix of the channels of processes; the server's id follows it
-- ARGV[2]  the message
-- RETURNS  how many connections it was sent to
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
local reached = {}
for _, member in ipairs(members) do
  local server = member:match('^[^:]+')
  if not reached[server] then
    reached[server] = true
    redis.call('PUBLISH', ARGV[1] .. server, ARGV[2])
  end
end
return #members
