-- Pauses a group, or asks whether it still is, and for the right to try one event.
-- KEYS[1]  the paused groups of the stream: a hash of 'when to try, the pause in milliseconds, the error'
-- ARGV[1]  the group
-- ARGV[2]  'pause', 'try' (there is an event to try) or 'ask'
-- ARGV[3]  for 'pause': how long, in milliseconds
-- ARGV[4]  for 'pause': the error
-- RETURNS  milliseconds until one event may be tried; 0: the caller may try one; -1: the group is not paused
local key, group, verb = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The key ends by itself if no consumer is left to try, or to resume.
local function pause_for(pause, reason)
  redis.call('HSET', key, group, string.format('%.0f %.0f ', now + pause, pause) .. reason)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), 2 * pause + 60000))
end

if verb == 'pause' then
  pause_for(tonumber(ARGV[3]), ARGV[4])
  return tonumber(ARGV[3])
end
local try_at, pause, reason = string.match(redis.call('HGET', key, group) or '', '^(%d+) (%d+) (.*)$')
if not try_at then return -1 end
if now < tonumber(try_at) then return tonumber(try_at) - now end
if verb == 'ask' then return 1 end
-- Others wait for the outcome of this trial, or until its consumer must have died.
pause_for(tonumber(pause), reason)
return 0
