-- Says how long entries have been idle and how often they were delivered, if they are still this consumer's.
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  and on, in threes: an id, its idle time in milliseconds, how often it was delivered
-- RETURNS  how many of them are still this consumer's
local stream, group, consumer, kept = KEYS[1], ARGV[1], ARGV[2], 0
for at = 3, #ARGV, 3 do
  local id = ARGV[at]
  if redis.call('XPENDING', stream, group, id, id, 1, consumer)[1] then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', ARGV[at + 1], 'RETRYCOUNT', ARGV[at + 2], 'JUSTID')
    kept = kept + 1
  end
end
return kept
