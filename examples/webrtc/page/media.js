// How long candidates are awaited. A TURN server that does not answer must not hold up the call.
const gatherTime = 2000

// Media are the video and audio of one call on this page: its camera and microphone, and the connection to the other
// page.
export class Media {
  local // the stream of this page, once the user has allowed it
  remote = new MediaStream()
  closed = false
  #candidates = [] // of the caller, for later
  // Without servers, a connection works in one network only. For others, put the URLs and short-lived credentials of
  // STUN and TURN servers here, which your backend hands out.
  #peer = new RTCPeerConnection({ iceServers: [] })

  // constructor takes a function to call if the connection to the other page fails for good.
  constructor(failed) {
    this.#peer.addEventListener('track', ({ track }) => this.remote.addTrack(track))
    this.#peer.addEventListener('connectionstatechange', () => {
      if (this.#peer.connectionState === 'failed') failed()
    })
  }

  // offer returns what the caller sends, as SDP.
  async offer() {
    await this.#open()
    return this.#describe()
  }

  // answer returns what the callee sends, as SDP. Nothing is sent to the caller's page before connect: if two devices
  // accept at the same time, both have the same offer, and the one that loses must not disturb the other.
  async answer(offer) {
    const { sdp, candidates } = withoutCandidates(offer)
    this.#candidates = candidates
    await this.#peer.setRemoteDescription({ type: 'offer', sdp })
    await this.#open()
    return this.#describe()
  }

  // connect connects with the other page, once the call is active: with the answer on the caller's page. To repeat it
  // has no effect.
  async connect(answer) {
    if (this.#peer.signalingState === 'have-local-offer') {
      await this.#peer.setRemoteDescription({ type: 'answer', sdp: answer })
    }
    await Promise.all(this.#candidates.splice(0).map(candidate => this.#peer.addIceCandidate(candidate)))
  }

  close() {
    this.closed = true
    this.#peer.close()
    this.local?.getTracks().forEach(track => track.stop()) // the light of the camera goes out
  }

  async #open() {
    this.local = await navigator.mediaDevices.getUserMedia({ audio: true, video: { width: { ideal: 640 } } })
    if (this.closed) return this.close() // meanwhile
    this.local.getTracks().forEach(track => this.#peer.addTrack(track, this.local))
  }

  // #describe returns the description of this side with all candidates in it, so that it is one message.
  async #describe() {
    await this.#peer.setLocalDescription()
    if (this.#peer.iceGatheringState !== 'complete') {
      await new Promise(resolve => {
        setTimeout(resolve, gatherTime)
        this.#peer.addEventListener('icecandidate', ({ candidate }) => candidate ?? resolve())
      })
    }
    return this.#peer.localDescription.sdp
  }
}

// withoutCandidates returns an offer without the addresses to connect to, and these.
function withoutCandidates(offer) {
  const candidates = []
  let sdpMLineIndex = -1
  const lines = offer.split('\r\n').filter(line => {
    if (line.startsWith('m=')) sdpMLineIndex++
    if (!line.startsWith('a=candidate:')) return line !== 'a=end-of-candidates'
    candidates.push({ candidate: line.slice('a='.length), sdpMLineIndex })
    return false
  })
  return { sdp: lines.join('\r\n'), candidates }
}
